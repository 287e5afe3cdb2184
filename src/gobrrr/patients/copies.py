"""B205: a cache that is copied whole to append a row; its twin has room for it."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, sized

WIDTH = 1024


def _cache() -> tuple[torch.Tensor, torch.Tensor]:
    rows = sized(1 << 13, 1 << 18)
    return torch.randn(rows, WIDTH, device=DEVICE), torch.randn(1, WIDTH, device=DEVICE)


def sick() -> Callable[[], object]:
    cache, row = _cache()
    return lambda: torch.cat([cache[:-1], row]).sum()


def healthy() -> Callable[[], object]:
    cache, row = _cache()

    def step() -> torch.Tensor:
        cache[-1:] = row
        return cache.sum()

    return step
