"""B106: compiled layers with an uncompiled call between them; its twin calls it afterwards."""

from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized


@torch.compiler.disable  # type: ignore[untyped-decorator]
def _watched(x: torch.Tensor) -> torch.Tensor:
    """As a library does that logs what passes."""
    return x


class Layers(nn.Module):
    def __init__(self, *, watching: bool) -> None:
        super().__init__()
        width = sized(256, 4096)
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.watching = watching

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.first(x))
        if self.watching:
            x = _watched(x)
        return functional.relu(self.second(x))


def _step(*, watching: bool) -> Callable[[], object]:
    model = Layers(watching=watching).to(DEVICE, FAST)
    compiled = torch.compile(model)
    x = torch.randn(sized(256, 8192), sized(256, 4096), device=DEVICE, dtype=FAST)

    def step() -> None:
        with torch.no_grad():
            _watched(compiled(x))

    return step


def sick() -> Callable[[], object]:
    return _step(watching=True)


def healthy() -> Callable[[], object]:
    return _step(watching=False)
