"""B201: three ops that go over the same numbers; its twin is compiled into one."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, sized


def _clipped(x: torch.Tensor) -> torch.Tensor:
    return (x * 2).add(1.0).relu()


def sick() -> Callable[[], object]:
    x = torch.randn(sized(1 << 23, 1 << 28), device=DEVICE)
    return lambda: _clipped(x)


def healthy() -> Callable[[], object]:
    x = torch.randn(sized(1 << 23, 1 << 28), device=DEVICE)
    compiled = torch.compile(_clipped)
    return lambda: compiled(x)
