"""B202: attention written out; its twin calls the kernel."""

from collections.abc import Callable

import torch
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized


def _heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = torch.randn(3, sized(1, 8), sized(8, 16), sized(512, 2048), 64, device=DEVICE, dtype=FAST)
    return q, k, v


def sick() -> Callable[[], object]:
    q, k, v = _heads()
    return lambda: (q @ k.mT / 8).softmax(-1) @ v


def healthy() -> Callable[[], object]:
    q, k, v = _heads()
    return lambda: functional.scaled_dot_product_attention(q, k, v)
