"""B210: a norm written out; its twin calls the kernel."""

from collections.abc import Callable

import torch
from torch.nn import functional

from gobrrr.patients.body import DEVICE, sized

WIDTH = 1024


def _rows() -> torch.Tensor:
    return torch.randn(sized(1 << 12, 1 << 17), WIDTH, device=DEVICE)


def sick() -> Callable[[], object]:
    x = _rows()
    return lambda: x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt()


def healthy() -> Callable[[], object]:
    x = _rows()
    return lambda: functional.layer_norm(x, (WIDTH,))
