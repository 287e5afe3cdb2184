"""B109: a batch that comes from ordinary memory; its twin's is pinned."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products


def _step(*, pinned: bool) -> Callable[[], object]:
    batch = torch.randn(1 << 24, pin_memory=pinned)
    multiply = products(8)

    def step() -> torch.Tensor:
        on_device = batch.to(DEVICE, non_blocking=True)
        multiply()
        return on_device.sum()

    return step


def sick() -> Callable[[], object]:
    return _step(pinned=False)


def healthy() -> Callable[[], object]:
    return _step(pinned=True)
