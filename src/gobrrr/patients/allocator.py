"""B108: a step that gives all cached memory back to the driver, and asks for it again."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE


def _step(*, emptying: bool) -> Callable[[], object]:
    tensors = [torch.randn(1 << 26, device=DEVICE) for _ in range(8)]

    def step() -> None:
        for x in tensors:
            x.exp()
        if emptying:
            torch.cuda.empty_cache()

    return step


def sick() -> Callable[[], object]:
    return _step(emptying=True)


def healthy() -> Callable[[], object]:
    return _step(emptying=False)
