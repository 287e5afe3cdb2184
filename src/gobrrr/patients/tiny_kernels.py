"""B103: a step of many updates of a few numbers each; its twin updates them all at once."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, products, sized

UPDATES = 400


def sick() -> Callable[[], object]:
    targets, states = ([torch.randn(16, device=DEVICE) for _ in range(UPDATES)] for _ in range(2))
    multiply = products(sized(1, 4))

    def step() -> None:
        multiply()
        for state, target in zip(states, targets, strict=True):
            state.lerp_(target, 0.01)

    return step


def healthy() -> Callable[[], object]:
    target, state = torch.randn(2, UPDATES, 16, device=DEVICE)
    multiply = products(sized(1, 4))

    def step() -> None:
        multiply()
        state.lerp_(target, 0.01)

    return step
