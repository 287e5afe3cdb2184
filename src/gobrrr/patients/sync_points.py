"""B102: a step that reads a norm after every layer."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, FAST

LAYERS = 20


def _layers() -> tuple[torch.Tensor, list[torch.Tensor]]:
    x = torch.randn(8192, 2048, device=DEVICE, dtype=FAST)
    return x, [torch.randn(2048, 2048, device=DEVICE, dtype=FAST) / 2048**0.5 for _ in range(LAYERS)]


def sick() -> Callable[[], object]:
    first, layers = _layers()

    def step() -> list[float]:
        x, norms = first, []
        for layer in layers:
            x = x @ layer
            norms.append(x[0].norm().item())
        return norms

    return step


def healthy() -> Callable[[], object]:
    first, layers = _layers()

    def step() -> torch.Tensor:
        x, norms = first, []
        for layer in layers:
            x = x @ layer
            norms.append(x[0].norm())
        return torch.stack(norms)

    return step
