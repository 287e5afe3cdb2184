"""B304: products and convolutions far below both roofs."""

from gobrrr.diagnose.attribute import Attributed, shortest_s
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.misaligned import odd_dimension
from gobrrr.diagnose.findings.places import by_place
from gobrrr.diagnose.findings.products import good_s, is_product
from gobrrr.diagnose.findings.wave_quantization import wasted_s
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import percent, seconds
from gobrrr.work.op import OpClass

SLOW = 0.3
"""Of its floor's rate: less than half of what a good product comes to."""

LONG = 10
"""Shortest kernels, below which a product is latency."""

NOTABLE = 0.1
"""Of the step."""


@finding(
    "B304",
    "low-rate products",
    explanation=(
        "These products and convolutions run at less than a third of what their arithmetic or their bytes allow. "
        "Their shapes suit no fast kernel: many small groups, a long inner dimension with few tiles, a layout that "
        "has to be turned first. At stake is the time above 70 % of the floor's rate."
    ),
    reads=(
        "contractions on a GPU longer than ten shortest kernels, aligned and with filled waves, below 30 % of their "
        "floor's rate"
    ),
    treatment="channels_last for convolutions, one product instead of several, wider groups, mode='max-autotune'",
    fix="""
    model = model.to(memory_format=torch.channels_last)
    qkv = nn.Linear(width, 3 * width)  # was: three layers that read the same input
    """,
    unless="Where a shape is given by the data there may be no better kernel; autotuning says so in minutes.",
)
def low_rate(case: Case) -> Stake | None:
    slow = [one for one in case.kernels if _is_slow(one, case)]
    saved_s, took_s = sum(one.seconds - good_s(one) for one in slow), sum(one.seconds for one in slow)
    if saved_s < NOTABLE * case.exam.step_s:
        return None
    floor_s = sum(one.floor.seconds for one in slow if one.floor is not None)
    evidence = f"{len(slow)} kernels take {seconds(took_s)}, at {percent(floor_s / took_s, 0)} of their floors' rate"
    return case.saving(saved_s, (evidence, *by_place(slow)))


def _is_slow(one: Attributed, case: Case) -> bool:
    """On a GPU: a CPU's rate swings with its neighbours, and its caches make their own exceptions."""
    if case.exam.serial or one.cls is not OpClass.CONTRACTION or one.kernel.kind is not KernelKind.COMPUTE:
        return False
    if one.floor is None:
        return False
    long = one.seconds > LONG * shortest_s(one.kernel, one.cls, case.exam.ceilings)
    return long and one.floor.seconds < SLOW * one.seconds and not _has_other_name(one, case)


def _has_other_name(one: Attributed, case: Case) -> bool:
    """B302 and B303, which know why it is slow."""
    if not is_product(one):
        return False
    multiprocessors = case.exam.ceilings.multiprocessors
    return odd_dimension(one) is not None or bool(multiprocessors and wasted_s(one, multiprocessors))
