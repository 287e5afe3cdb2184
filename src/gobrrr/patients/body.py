"""What all patients are made of: a device to live on, sizes for it, and a healthy bulk of work."""

from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")

DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
ON_CPU = DEVICE.type == "cpu"
FAST = torch.float32 if ON_CPU else torch.bfloat16
"""The type in which this device multiplies best; few CPUs have units for another."""


def sized(cpu: T, gpu: T) -> T:
    """Two cores take milliseconds for the first, a large GPU for the second."""
    return cpu if ON_CPU else gpu


def products(number: int = 1) -> Callable[[], torch.Tensor]:
    """Aligned products in the fast type: what keeps a device busy in a healthy way."""
    size = sized(256, 4096)
    a, b = (torch.randn(size, size, device=DEVICE, dtype=FAST) for _ in range(2))
    out = torch.empty(size, size, device=DEVICE, dtype=FAST)

    def multiply() -> torch.Tensor:
        for _ in range(number):
            torch.mm(a, b, out=out)
        return out

    return multiply
