"""The repeat sweep: an element loaded, multiplied r times, stored. First the bytes take the time, then the arithmetic.

Multiplications are not paired into multiply-adds, so that half of the vector rate is their peak, as in the article.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gobrrr import units
from gobrrr.lab.claim import Check, Claim, judged, near, share
from gobrrr.lab.compiling import compiled
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.knee import knee
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import Site
from gobrrr.machine import Ceilings

if TYPE_CHECKING:
    import torch

FACTOR = 0.999
"""Close to 1, so that a thousand of them leave numbers of ordinary size."""

BYTES_PER_ELEMENT = 8
"""One fp32 in, one out."""

HALF = 0.5


@dataclass(frozen=True, slots=True)
class Repeat:
    repeats: int
    seconds: float
    flops: float
    bytes: float
    flops_per_s: float
    bytes_per_s: float
    intensity: float
    regime: str


@experiment("how many operations per element until arithmetic limits, not memory?", "c07", "c08", "c17")
def intensity(site: Site) -> Found:
    import torch

    ceilings = site.ceilings("vector.fp32", "dram", "cache")
    x = torch.rand(site.sizes.elements, device=site.device)
    out = torch.empty_like(x)
    points = [_point(site, repeats, x, out) for repeats in site.sizes.repeats]
    return Found(points, judge(points, ceilings), (_curve(points, ceilings), _BARS))


def multiplied(repeats: int) -> Callable[["torch.Tensor", "torch.Tensor"], None]:
    """Into memory that is there: on a CPU a new result costs page faults, and they cost more than the bytes."""

    def function(x: "torch.Tensor", out: "torch.Tensor") -> None:
        for _ in range(repeats):
            x = x * FACTOR
        out.copy_(x)

    return function


def _point(site: Site, repeats: int, x: "torch.Tensor", out: "torch.Tensor") -> Repeat:
    step = compiled(multiplied(repeats), x, out)
    seen = site.examined(step, f"{repeats} multiplications per element", fused=True)
    return Repeat(
        repeats=repeats,
        seconds=seen.seconds,
        flops=seen.flops,
        bytes=seen.bytes,
        flops_per_s=seen.flops / seen.seconds,
        bytes_per_s=seen.bytes / seen.seconds,
        intensity=seen.flops / seen.bytes,
        regime=seen.regime,
    )


def ridge_repeats(ceilings: Ceilings) -> float | None:
    """r·N/(V/2) = 8·N/W: the multiplications per element that take as long as its bytes."""
    vector, memory = ceilings.vector_flops_per_s.get("fp32"), ceilings.dram_bytes_per_s
    return vector / 2 * BYTES_PER_ELEMENT / memory if vector and memory else None


def judge(points: Sequence[Repeat], ceilings: Ceilings) -> tuple[Claim, ...]:
    return (_unary(points[0], ceilings), _turn(points, ceilings), _half_of_peak(points, ceilings))


def _unary(one: Repeat, ceilings: Ceilings) -> Claim:
    vector, memory = ceilings.vector_flops_per_s.get("fp32"), ceilings.dram_bytes_per_s
    of_peak = one.flops_per_s / (vector / 2) if vector else None
    of_memory = one.bytes_per_s / memory if memory else None
    return judged(
        "c07",
        f"{units.per_byte(one.intensity)}, {units.flops_per_s(one.flops_per_s)}",
        [
            near("FLOP/B of one multiplication", one.intensity, 0.125, 1.001),
            Check("of the peak of multiplications", of_peak, high=0.05),
            Check("of the memory's bandwidth: what is left to tune", of_memory, low=0.7),
        ],
        f"{units.percent(of_peak)} of the arithmetic while memory runs at {units.percent(of_memory, 0)} of its ceiling",
    )


def _turn(points: Sequence[Repeat], ceilings: Ceilings) -> Claim:
    found, expected = _knee(points), ridge_repeats(ceilings)
    change = regime_change(points)
    plateau = max(point.flops_per_s for point in points)
    vector = ceilings.vector_flops_per_s.get("fp32")
    return judged(
        "c08",
        f"knee at {units.count(found)} multiplications, {units.count(_paired(found))} operations if paired",
        [
            near("knee, against vector rate over bandwidth", found, expected, 1.5),
            near("operations per element at the knee, against 100", _paired(found), 100, 2),
            near("where diagnose turns from bandwidth to compute, against the knee", change, found, 2),
        ],
        f"the machine's rates put it at {units.count(expected)} multiplications; the longest chains reach "
        f"{units.percent(plateau / (vector / 2) if vector else None, 0)} of the peak; diagnose turns to compute at "
        f"{units.count(change)}",
    )


def _half_of_peak(points: Sequence[Repeat], ceilings: Ceilings) -> Claim:
    """The regime is the diagnosis's, the fraction of peak the article's."""
    vector = ceilings.vector_flops_per_s.get("fp32")
    high = [point for point in points if vector and point.flops_per_s >= HALF * vector / 2]
    low = [point for point in points if vector and point.flops_per_s < HALF * vector / 2]
    moving = sum(point.regime != "compute" for point in high)
    slack = sum(point.regime == "compute" for point in low)
    why = f"{len(high)} of {len(points)} points reach half of the peak"
    if moving:
        why += (
            f"; {moving} of them is still bound by bandwidth: between half of the ridge and the ridge bytes take longer"
        )
    if slack:
        why += f"; {slack} below half are compute-bound all the same: the compiled loop does not fill the units"
    return judged(
        "c17",
        f"{len(points) - moving - slack} of {len(points)} points agree",
        [
            share("of the points at half of peak or more, compute-bound", [p.regime == "compute" for p in high]),
            share("of the points below, not compute-bound", [point.regime != "compute" for point in low]),
        ],
        why,
    )


def regime_change(points: Sequence[Repeat]) -> float | None:
    """Between the last point that is not compute-bound and the first of those that are, in the middle of the axis."""
    computing = [point.regime == "compute" for point in points]
    first = next((place for place in range(len(points)) if all(computing[place:])), len(points))
    if first in (0, len(points)):
        return None
    return float((points[first - 1].repeats * points[first].repeats) ** 0.5)


def _knee(points: Sequence[Repeat]) -> float | None:
    return knee([point.repeats for point in points], [point.seconds for point in points])


def _paired(repeats: float | None) -> float | None:
    """A multiply-add is two operations in one slot."""
    return None if repeats is None else 2 * repeats


def _curve(points: Sequence[Repeat], ceilings: Ceilings) -> Drawing:
    marks = {"knee": _knee(points), "ridge": ridge_repeats(ceilings)}
    return Drawing(
        "curve",
        "time against multiplications per element",
        Column("repeats", "multiplications per element", ""),
        Column("seconds", "time", "s"),
        marks={name: place for name, place in marks.items() if place is not None},
    )


_BARS = Drawing(
    "bars",
    "arithmetic reached",
    Column("repeats", "operations", ""),
    Column("flops_per_s", "FLOP/s", "FLOP/s"),
    (Column("bytes_per_s", "B/s", "B/s"), Column("intensity", "intensity", "FLOP/B"), Column("regime", "regime")),
)
