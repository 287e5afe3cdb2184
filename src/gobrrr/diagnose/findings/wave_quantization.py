"""B303: products whose last wave of tiles leaves most of the device idle."""

from math import ceil

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.misaligned import odd_dimension
from gobrrr.diagnose.findings.places import place
from gobrrr.diagnose.findings.products import Shape, is_product, shape
from gobrrr.units import percent, seconds

TILES = {
    (128, 256): 0.85,
    (256, 128): 0.85,
    (128, 192): 0.82,
    (192, 128): 0.82,
    (128, 128): 0.78,
    (64, 256): 0.7,
    (256, 64): 0.7,
    (64, 128): 0.6,
    (128, 64): 0.6,
}
"""Of the result, that a library gives to one multiprocessor at a time, with the fraction of the peak that each comes to
when all multiprocessors have one: the large ones are the quick ones."""

WASTED = 0.2
"""Of the multiprocessors' time, in the best choice of tiles."""

LONG = 10
"""Shortest kernels: what takes less is latency, whatever its tiles."""

SHOWN = 3


@finding(
    "B303",
    "wave quantization",
    explanation=(
        "A product is cut into tiles, one for each multiprocessor at a time. If the tiles are a few more than a "
        "whole number of rounds, the last round keeps a few multiprocessors busy and the others wait as long as for "
        "a full one. At stake is the share that waits, with the best of the usual tiles, and never more than the "
        "product is above its floor."
    ),
    reads=(
        "aligned products on a GPU whose tiles, whichever size is best, leave a fifth of the multiprocessors' time "
        "unused, and that are above their floor by as much"
    ),
    treatment=(
        "sizes whose tiles fill whole rounds: another batch size, width or split; torch.compile(mode='max-autotune')"
    ),
    fix="""
    # 132 multiprocessors, 3072 columns: 16 × 16 tiles of 128 × 192 take two rounds, 17 × 16 take three
    batch_tokens = 16 * 128  # was: 17 * 128
    """,
    unless="Kernels that split along the inner dimension blur the steps; the batch may matter for more than its tiles.",
)
def wave_quantization(case: Case) -> Stake | None:
    multiprocessors = case.exam.ceilings.multiprocessors
    if case.exam.serial or multiprocessors is None:
        return None
    wasted = [(one, wasted_s(one, multiprocessors)) for one in case.kernels if _is_long(one, case)]
    found = sorted(((one, waste) for one, waste in wasted if waste > 0), key=lambda pair: -pair[1])
    return case.saving(
        sum(waste for _, waste in found), (_line(one, waste, multiprocessors) for one, waste in found[:SHOWN])
    )


def _is_long(one: Attributed, case: Case) -> bool:
    shortest_s = case.exam.ceilings.shortest_kernel_class_s.get("gemm", 0.0)
    return is_product(one) and one.seconds > LONG * shortest_s and not odd_dimension(one)


def wasted_s(one: Attributed, multiprocessors: int) -> float:
    dimensions = None if one.op is None else shape(one.op)
    if dimensions is None or one.floor is None:
        return 0.0
    waste = least_waste(dimensions, multiprocessors)
    above = 1 - one.floor.seconds / one.seconds
    return one.seconds * min(waste, above) if min(waste, above) >= WASTED else 0.0


def least_waste(dimensions: Shape, multiprocessors: int) -> float:
    """With the tile that would be quickest: its own efficiency, times what its rounds are filled to."""
    best = max(TILES, key=lambda tile: TILES[tile] * _filled(dimensions, tile, multiprocessors))
    return 1 - _filled(dimensions, best, multiprocessors)


def _filled(dimensions: Shape, tile: tuple[int, int], multiprocessors: int) -> float:
    """Of all rounds' places, those with numbers that are wanted."""
    tiles = dimensions.batch * ceil(dimensions.m / tile[0]) * ceil(dimensions.n / tile[1])
    places = ceil(tiles / multiprocessors) * multiprocessors * tile[0] * tile[1]
    return dimensions.batch * dimensions.m * dimensions.n / places


def _line(one: Attributed, waste: float, multiprocessors: int) -> str:
    dimensions = None if one.op is None else shape(one.op)
    assert dimensions is not None, "only products waste waves"
    return (
        f"{dimensions.m} × {dimensions.n} × {dimensions.k} takes {seconds(one.seconds)}: its tiles leave "
        f"{percent(least_waste(dimensions, multiprocessors), 0)} of {multiprocessors} multiprocessors unused, "
        f"{seconds(waste)} ({place(one.op)})"
    )
