"""B303: a product of twelve tiles more than a GPU has multiprocessors; its twin has as many.

Made for the 132 multiprocessors of an H100 or H200.
"""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE


def _step(rows: int) -> Callable[[], object]:
    a = torch.randn(rows, 16384, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn(16384, 12 * 256, device=DEVICE, dtype=torch.bfloat16)
    return lambda: a @ b


def sick() -> Callable[[], object]:
    return _step(12 * 128)


def healthy() -> Callable[[], object]:
    return _step(11 * 128)
