"""B601: a step that holds nearly all of the device's memory; its twin holds a hundredth."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products


def _step(share: float) -> Callable[[], object]:
    multiply = products(4)
    numbers = int(share * torch.cuda.get_device_properties(DEVICE).total_memory) // 4

    def step() -> None:
        held = torch.empty(numbers, device=DEVICE)
        held[: 1 << 20].fill_(1.0)
        multiply()

    return step


def sick() -> Callable[[], object]:
    return _step(0.92)


def healthy() -> Callable[[], object]:
    return _step(0.01)
