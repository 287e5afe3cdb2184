"""B505: an op of its own that nobody told us about; its twin's is torch's."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE, sized


@torch.library.custom_op("gobrrr_patients::doubled", mutates_args=())
def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def sick() -> Callable[[], object]:
    x = torch.randn(sized(1 << 22, 1 << 27), device=DEVICE)
    return lambda: _doubled(x)


def healthy() -> Callable[[], object]:
    x = torch.randn(sized(1 << 22, 1 << 27), device=DEVICE)
    return lambda: x * 2
