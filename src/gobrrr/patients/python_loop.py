"""B104: a step that multiplies heads one by one; its twin multiplies them together."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, FAST, products, sized

HEADS = 256


def _operands() -> tuple[torch.Tensor, torch.Tensor]:
    left, right = torch.randn(2, HEADS, 16, 16, device=DEVICE, dtype=FAST)
    return left, right


def sick() -> Callable[[], object]:
    left, right = _operands()
    multiply = products(sized(1, 4))

    def step() -> torch.Tensor:
        multiply()
        return torch.stack([left[head] @ right[head] for head in range(HEADS)])

    return step


def healthy() -> Callable[[], object]:
    left, right = _operands()
    multiply = products(sized(1, 4))

    def step() -> torch.Tensor:
        multiply()
        return left @ right

    return step
