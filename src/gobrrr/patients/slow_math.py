"""B301: products in fp32; its twin's are in bf16."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE


def _step(dtype: torch.dtype) -> Callable[[], object]:
    a, b = torch.randn(2, 8192, 8192, device=DEVICE, dtype=dtype)
    return lambda: a @ b


def sick() -> Callable[[], object]:
    return _step(torch.float32)


def healthy() -> Callable[[], object]:
    return _step(torch.bfloat16)
