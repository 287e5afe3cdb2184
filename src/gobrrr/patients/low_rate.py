"""B304: a convolution in many small groups; its twin has one, and as much arithmetic."""

from collections.abc import Callable

import torch
from torch import nn

from gobrrr.patients.body import DEVICE


def _step(channels: int, groups: int) -> Callable[[], object]:
    layer = nn.Conv2d(channels, channels, 3, padding=1, groups=groups, bias=False)
    layer = layer.to(DEVICE, torch.bfloat16).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    x = torch.randn(64, channels, 56, 56, device=DEVICE, dtype=torch.bfloat16)
    x = x.to(memory_format=torch.channels_last)

    def step() -> None:
        with torch.no_grad():
            layer(x)

    return step


def sick() -> Callable[[], object]:
    return _step(1024, 256)


def healthy() -> Callable[[], object]:
    return _step(256, 1)
