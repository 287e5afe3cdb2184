"""B504: so many small ops that recording them takes longer than doing them; its twin has few."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products, sized


def sick() -> Callable[[], object]:
    total = torch.zeros(1, device=DEVICE)

    def step() -> None:
        for _ in range(3000):
            total.add_(1.0)

    return step


def healthy() -> Callable[[], object]:
    return products(sized(1, 8))
