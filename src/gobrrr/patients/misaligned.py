"""B302: a head for 50257 words; its twin has 47 more that nobody uses."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE


def _step(words: int) -> Callable[[], object]:
    hidden = torch.randn(8192, 768, device=DEVICE, dtype=torch.bfloat16)
    head = torch.randn(words, 768, device=DEVICE, dtype=torch.bfloat16)
    return lambda: hidden @ head.t()


def sick() -> Callable[[], object]:
    return _step(50257)


def healthy() -> Callable[[], object]:
    return _step(50304)
