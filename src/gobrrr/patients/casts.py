"""B204: norms in another type than what is between them; its twin has one type."""

from collections.abc import Callable

import torch
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized

WIDE = torch.float64 if FAST is torch.float32 else torch.float32
WIDTH = 1024


def _rows() -> torch.Tensor:
    return torch.randn(sized(1 << 12, 1 << 17), WIDTH, device=DEVICE, dtype=FAST)


def sick() -> Callable[[], object]:
    x = _rows()
    return lambda: functional.layer_norm(x.to(WIDE), (WIDTH,)).to(FAST)


def healthy() -> Callable[[], object]:
    x = _rows()
    return lambda: functional.layer_norm(x, (WIDTH,))
