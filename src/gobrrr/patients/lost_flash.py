"""B203: attention that is a flash kernel until it is compiled: under tracing its library takes another way.

The bound on the scores changes nothing, but keeps the compiler from making a flash kernel of it again.
"""

from collections.abc import Callable

import torch
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized


def _heads() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    q, k, v = torch.randn(3, sized(1, 8), sized(8, 16), sized(512, 2048), 64, device=DEVICE, dtype=FAST)
    return q, k, v


def _attended(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    if torch.compiler.is_compiling():
        return ((q @ k.mT) * 0.125).clamp(max=1e4).softmax(-1) @ v
    return functional.scaled_dot_product_attention(q, k, v)


def sick() -> Callable[[], object]:
    heads, compiled = _heads(), torch.compile(_attended)
    return lambda: compiled(*heads)


def healthy() -> Callable[[], object]:
    heads, compiled = _heads(), torch.compile(functional.scaled_dot_product_attention)
    return lambda: compiled(*heads)
