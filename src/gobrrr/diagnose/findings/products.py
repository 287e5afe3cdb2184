"""What findings about products share: which kernels are one, their shape, and what a good one takes."""

from math import prod
from typing import NamedTuple

from gobrrr.diagnose.attribute import Attributed
from gobrrr.timing.kernel import KernelKind
from gobrrr.work.op import Op
from gobrrr.work.registry import canonical

NAMES = frozenset({"mm", "addmm", "bmm", "baddbmm", "linear", "matmul", "_addmm_activation"})

GOOD = 0.7
"""Of its floor's rate: what a large, aligned product comes to on every GPU that was looked at."""


class Shape(NamedTuple):
    batch: int
    m: int
    n: int
    k: int


def is_product(one: Attributed) -> bool:
    return (
        one.kernel.kind is KernelKind.COMPUTE
        and one.op is not None
        and canonical(one.op.name) in NAMES
        and shape(one.op) is not None
    )


def shape(op: Op) -> Shape | None:
    """From result and first factor; of an addmm the first operand is the bias, the last two are the factors."""
    factors = [ref for ref in op.inputs if len(ref.shape) > 1][-2:]
    if len(factors) < 2 or not op.outputs or len(op.outputs[0].shape) < 2:
        return None
    *batch, m, n = op.outputs[0].shape
    return Shape(prod(batch), m, n, factors[0].shape[-1])


def good_s(one: Attributed) -> float:
    """What it would take at a good rate, and never more than it does."""
    return one.seconds if one.floor is None else min(one.seconds, one.floor.seconds / GOOD)
