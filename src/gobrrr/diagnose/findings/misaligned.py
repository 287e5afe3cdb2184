"""B302: products whose rows do not begin where the matrix units can read them."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from math import ceil

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import place
from gobrrr.diagnose.findings.products import good_s, is_product
from gobrrr.diagnose.findings.slow_math import faster_mode
from gobrrr.dtypes import ITEM_BYTES
from gobrrr.units import percent, seconds

ALIGNED_BYTES = 16
"""What a load of the matrix units takes at once: 8 numbers in bf16, 4 in fp32."""

PADDED = 64
"""A multiple of this suits every type and every tile."""

SLOW = 0.6
"""Of its floor's rate. Aligned products of a size come to 0.7 and more."""

NOTABLE = 0.02
"""Of the step."""

SHOWN = 3


@finding(
    "B302",
    "misaligned shapes",
    explanation=(
        "A row that is no multiple of 16 bytes long begins at an odd place, and then the matrix units cannot be fed "
        "by wide loads: the library takes a slower kernel, by a factor of two to eight. Padding the odd dimension "
        "costs a percent. At stake is the time above what the padded product would take at 70 % of its floor's rate."
    ),
    reads=(
        "products with a dimension in memory that is no multiple of 16 bytes, on a GPU, below 60 % of their floor's "
        "rate"
    ),
    treatment="pad the dimension to a multiple of 64: a vocabulary of 50257 to 50304; torch.compile pads by itself",
    fix="""
    head = nn.Linear(width, 64 * math.ceil(vocabulary / 64), bias=False)
    logits = head(x)[..., :vocabulary]
    """,
    unless=(
        "The shape of the parameter changes, and with it the checkpoint. Small products are latency, not arithmetic."
    ),
)
def misaligned(case: Case) -> Stake | None:
    odd = [one for one in case.kernels if not case.exam.serial and is_product(one) and odd_dimension(one)]
    slow = [one for one in odd if one.floor is not None and one.floor.seconds < SLOW * one.seconds]
    saved_s = sum(one.seconds - good_s(one) for one in slow)
    if saved_s >= NOTABLE * case.exam.step_s:
        return case.saving(saved_s, _evidence(slow))
    return _hidden(case, [one for one in odd if _is_fp32(one)])


def _hidden(case: Case, odd: list[Attributed]) -> Stake | None:
    """In fp32, without matrix units, order hardly matters; it will as soon as they are used, so it is said."""
    took_s = sum(one.seconds for one in odd)
    if took_s < NOTABLE * case.exam.step_s or faster_mode(case.exam.ceilings.matmul_flops_per_s) is None:
        return None
    return Stake(0.0, 0.0, (*_evidence(odd), "nothing lost while they run in fp32 (B301); in tf32 or bf16 much is"))


def _is_fp32(one: Attributed) -> bool:
    return one.work is not None and set(one.work.matrix) == {"fp32"}


def odd_dimension(one: Attributed) -> int | None:
    """The first length of a row in memory, of an operand or the result, that is no multiple of 16 bytes."""
    assert one.op is not None, "a product has an op"
    matrices = (ref for ref in (*one.op.inputs, *one.op.outputs) if min(ref.shape[-2:], default=0) > 1)
    rows = (
        (max(ref.stride[-2:]), ref.item_bytes) for ref in matrices if len(ref.shape) > 1 and ref.dtype in ITEM_BYTES
    )
    return next((row for row, width in rows if row * width % ALIGNED_BYTES), None)


def _evidence(odd: Iterable[Attributed]) -> Iterator[str]:
    """One line for each odd length, the longest first."""
    lengths: defaultdict[int, list[Attributed]] = defaultdict(list)
    for one in odd:
        lengths[odd_dimension(one) or 0].append(one)
    longest = sorted(lengths.items(), key=lambda item: -sum(one.seconds for one in item[1]))
    return (_line(length, some) for length, some in longest[:SHOWN])


def _line(length: int, some: list[Attributed]) -> str:
    took_s, floor_s = sum(one.seconds for one in some), sum(one.floor.seconds for one in some if one.floor is not None)
    return (
        f"rows of {length}: {len(some)} products take {seconds(took_s)}, at {percent(floor_s / took_s, 0)} of the "
        f"rate; {PADDED * ceil(length / PADDED)} is a multiple of {PADDED} ({place(some[0].op)})"
    )
