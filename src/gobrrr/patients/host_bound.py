"""B101: a step that keeps running averages in Python, number by number."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products, sized

NUMBERS = 1 << 18


def sick() -> Callable[[], object]:
    multiply = products()
    averages = [0.0] * NUMBERS

    def step() -> None:
        for place in range(NUMBERS):
            averages[place] = 0.9 * averages[place] + 0.1
        multiply()

    return step


def healthy() -> Callable[[], object]:
    multiply = products(sized(1, 4))
    averages, ones = torch.zeros(NUMBERS, device=DEVICE), torch.ones(NUMBERS, device=DEVICE)

    def step() -> None:
        averages.lerp_(ones, 0.1)
        multiply()

    return step
