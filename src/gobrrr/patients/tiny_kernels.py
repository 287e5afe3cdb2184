"""B103: a step of many updates of a few numbers; its twin updates many numbers at once."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, sized


def sick() -> Callable[[], object]:
    target, state = torch.randn(2, 16, device=DEVICE)

    def step() -> None:
        for _ in range(400):
            state.lerp_(target, 0.01)

    return step


def healthy() -> Callable[[], object]:
    target, state = torch.randn(2, sized(1 << 22, 1 << 27), device=DEVICE)
    return lambda: state.lerp_(target, 0.01)
