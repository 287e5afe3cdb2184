"""B206: kernels that read memory against its order, and so at a fraction of its rate."""

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.diagnose.floor import Level
from gobrrr.units import percent, seconds
from gobrrr.work.op import Op, OpClass, TensorRef

LARGE_BYTES = 1 << 20
"""A smaller tensor is in the cache, where order matters little."""

SLOW = 0.5
"""Of its floor's rate: an op on tensors in one order comes closer to it everywhere."""

GAPS = 2
"""Elements from one to the next: every second one, and half of what memory delivers is thrown away."""


@finding(
    "B206",
    "strided access",
    explanation=(
        "Memory comes in lines of 32 to 128 bytes. An op whose operands lie in different orders, or that skips "
        "elements, uses part of each line, and the rest was fetched for nothing. Counted is the time above the floor "
        "of the same op at full bandwidth."
    ),
    reads=(
        "pointwise ops and reductions limited by memory, on operands of a megabyte or more that lie across each "
        "other or have gaps, at less than half of their floor's rate"
    ),
    treatment="one layout from end to end: make the transposed operand contiguous once, outside the loop",
    fix="""
    weight_t = weight.t().contiguous()  # once
    y = x + weight_t  # was: x + weight.t()
    """,
    unless="If the operand is used once, making it contiguous costs the same strided pass.",
)
def strided_access(case: Case) -> Stake | None:
    found = [one for one in case.kernels if _is_slow(one) and one.op is not None and is_strided(one.op)]
    lost_s = sum(one.parts.inefficient for one in found if one.parts is not None)
    took_s = sum(one.seconds for one in found)
    rate = percent(1 - lost_s / took_s, 0) if took_s else ""
    return case.saving(
        lost_s,
        (f"{len(found)} kernels on strided operands take {seconds(took_s)}, at {rate} of the rate", *by_place(found)),
    )


def _is_slow(one: Attributed) -> bool:
    if one.cls not in (OpClass.ELEMENTWISE, OpClass.NORMALIZATION) or one.floor is None:
        return False
    return one.floor.level is Level.DRAM and one.floor.seconds < SLOW * one.seconds


def is_strided(op: Op) -> bool:
    large = [ref for ref in (*op.inputs, *op.outputs) if ref.unique_bytes >= LARGE_BYTES and ref.unique == ref.numel]
    return len({_order(ref) for ref in large}) > 1 or any(_has_gaps(ref) for ref in large)


def _order(ref: TensorRef) -> tuple[int, ...]:
    """Of its dimensions in memory, the outermost first, those that have an extent."""
    extents = [place for place, size in enumerate(ref.shape) if size > 1]
    return tuple(sorted(extents, key=lambda place: -ref.stride[place]))


def _has_gaps(ref: TensorRef) -> bool:
    strides = [stride for size, stride in zip(ref.shape, ref.stride, strict=True) if size > 1]
    return min(strides, default=1) >= GAPS
