"""B206: a sum with a matrix that lies across; its twin's lies along."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, sized


def _matrices() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    size = sized(2048, 16384)
    x, y, out = (torch.randn(size, size, device=DEVICE) for _ in range(3))
    return x, y, out


def sick() -> Callable[[], object]:
    x, y, out = _matrices()
    return lambda: torch.add(x, y.t(), out=out)


def healthy() -> Callable[[], object]:
    x, y, out = _matrices()
    return lambda: torch.add(x, y, out=out)
