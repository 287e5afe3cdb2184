"""B110: a hundred million additions to one place, each waiting for the last; its twin sums in a tree."""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE

NUMBERS = 1 << 27


def sick() -> Callable[[], object]:
    x = torch.randn(NUMBERS, device=DEVICE)
    place, total = torch.zeros(NUMBERS, dtype=torch.int64, device=DEVICE), torch.zeros(1, device=DEVICE)
    return lambda: total.index_add_(0, place, x)


def healthy() -> Callable[[], object]:
    x = torch.randn(NUMBERS, device=DEVICE)
    return x.sum
