"""B107: a compiled model that looks at a label which is another one in every step."""

from collections.abc import Callable
from itertools import count

import torch
from torch import nn
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized


class Labelled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        width = sized(256, 4096)
        self.layer, self.label = nn.Linear(width, width), "step 0"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.layer(x))
        return -x if self.label == "last step" else x


def _step(*, relabelling: bool) -> Callable[[], object]:
    model = Labelled().to(DEVICE, FAST)
    compiled = torch.compile(model)
    x = torch.randn(sized(256, 8192), sized(256, 4096), device=DEVICE, dtype=FAST)
    numbers = count()

    def step() -> None:
        if relabelling:
            model.label = f"step {next(numbers)}"
        with torch.no_grad():
            compiled(x)

    return step


def sick() -> Callable[[], object]:
    return _step(relabelling=True)


def healthy() -> Callable[[], object]:
    return _step(relabelling=False)
