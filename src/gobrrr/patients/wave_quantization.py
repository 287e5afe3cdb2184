"""B303: a product of eight tiles more than two rounds of a GPU's multiprocessors; its twin has eight fewer.

Made for the 132 multiprocessors of an H100 or H200 and for tiles of 128 × 192.
"""

from collections.abc import Callable

import torch

from gobrrr.patients.body import DEVICE


def _step(rows: int) -> Callable[[], object]:
    a = torch.randn(rows, 4096, device=DEVICE, dtype=torch.bfloat16)
    b = torch.randn(4096, 16 * 192, device=DEVICE, dtype=torch.bfloat16)
    return lambda: a @ b


def sick() -> Callable[[], object]:
    return _step(17 * 128)


def healthy() -> Callable[[], object]:
    return _step(16 * 128)
