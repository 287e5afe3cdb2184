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
from gobrrr.lab.site import Site, known
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


@dataclass(frozen=True, slots=True)
class Rates:
    """What the machine can do with an element."""

    multiplications_per_s: float
    """One a slot: half of the rate that counts a multiply-add as two."""
    bytes_per_s: float

    @classmethod
    def of(cls, ceilings: Ceilings) -> "Rates":
        vector = known(ceilings.vector_flops_per_s.get("fp32"), "the vector rate")
        return cls(vector / 2, known(ceilings.dram_bytes_per_s, "memory bandwidth"))

    @property
    def ridge(self) -> float:
        """r·N/M = 8·N/W: the multiplications per element that take as long as its bytes."""
        return self.multiplications_per_s * BYTES_PER_ELEMENT / self.bytes_per_s


@experiment("how many operations per element until arithmetic limits, not memory?", "c07", "c08", "c17")
def intensity(site: Site) -> Found:
    import torch

    rates = Rates.of(site.ceilings("vector.fp32", "dram", "cache"))
    x = torch.rand(site.sizes.elements, device=site.device)
    out = torch.empty_like(x)
    points = [_point(site, repeats, x, out) for repeats in site.sizes.repeats]
    return Found(points, judge(points, rates), (_curve(points, rates), _BARS))


def multiplied(repeats: int) -> Callable[["torch.Tensor", "torch.Tensor"], None]:
    """Into memory that is there: on a CPU a new result costs page faults, and they cost more than the bytes."""

    def function(x: "torch.Tensor", out: "torch.Tensor") -> None:
        for _ in range(repeats):
            x = x * FACTOR
        out.copy_(x)

    return function


def _point(site: Site, repeats: int, x: "torch.Tensor", out: "torch.Tensor") -> Repeat:
    step = compiled(multiplied(repeats), x, out)
    seen = site.examined(step, f"{repeats} multiplications per element")
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


def judge(points: Sequence[Repeat], rates: Rates) -> tuple[Claim, ...]:
    return (_unary(points[0], rates), _turn(points, rates), _half_of_peak(points, rates.multiplications_per_s))


def _unary(one: Repeat, rates: Rates) -> Claim:
    of_peak, of_memory = one.flops_per_s / rates.multiplications_per_s, one.bytes_per_s / rates.bytes_per_s
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


def _turn(points: Sequence[Repeat], rates: Rates) -> Claim:
    found, change = _knee(points), regime_change(points)
    reached = max(point.flops_per_s for point in points) / rates.multiplications_per_s
    return judged(
        "c08",
        f"knee at {units.count(found)} multiplications, {units.count(_paired(found))} operations if paired",
        [
            near("knee, against vector rate over bandwidth", found, rates.ridge, 1.5),
            near("operations per element at the knee, against 100", _paired(found), 100, 2),
            near("where diagnose turns from bandwidth to compute, against the knee", change, found, 2),
        ],
        f"the machine's rates put it at {units.count(rates.ridge)} multiplications; the longest chains reach "
        f"{units.percent(reached, 0)} of the peak; diagnose turns to compute at {units.count(change)}",
    )


def _half_of_peak(points: Sequence[Repeat], peak: float) -> Claim:
    """The regime is the diagnosis's, the fraction of peak the article's."""
    high = [point.regime for point in points if point.flops_per_s >= HALF * peak]
    low = [point.regime for point in points if point.flops_per_s < HALF * peak]
    slack = low.count("compute")
    moving = len(high) - high.count("compute")
    return judged(
        "c17",
        f"{len(points) - moving - slack} of {len(points)} points agree",
        [
            share("of the points at half of peak or more, compute-bound", [regime == "compute" for regime in high]),
            share("of the points below, not compute-bound", [regime != "compute" for regime in low]),
        ],
        f"{len(high)} of {len(points)} points reach half of the peak"
        + (f"; of them {moving} below the ridge, where bytes still take longer" if moving else "")
        + (f"; of the others {slack} beyond the ridge: the loop does not fill the units" if slack else ""),
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


def _curve(points: Sequence[Repeat], rates: Rates) -> Drawing:
    marks = {"knee": _knee(points), "ridge": rates.ridge}
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
