"""B504: so many views, each made of others, that recording them takes longer than making them; its twin has one."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products, sized


def sick() -> Callable[[], object]:
    return _step(3000)


def healthy() -> Callable[[], object]:
    return _step(1)


def _step(times: int) -> Callable[[], object]:
    matrix, multiply = torch.zeros(4, 4, device=DEVICE), products(sized(1, 8))

    def step() -> None:
        multiply()
        for _ in range(times):
            matrix.t()

    return step
