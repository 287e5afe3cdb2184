"""Ops over the measured ceilings: where each bubble of the roofline stands."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gobrrr import units
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import Exam
from gobrrr.report.machine import roofline_of
from gobrrr.report.roofline import Line, Roofline
from gobrrr.report.view import OpLine

TOGETHER = 1.6
"""Roofs within this factor are too close for a name each."""

MOST_DECADES = 6
"""Below the highest roof: what is slower stands at the lower edge."""

UNSEEN = 0.002
"""Of the time: so much may stand at the lower edge, or a speck would halve the picture."""

NOTABLE = 0.05
"""Of the step, from which on ops without a place are mentioned."""

MARGIN = 2.0
ROOM = 8.0
"""Beyond the last op or ridge, where the roofs have their names."""


@dataclass(frozen=True, slots=True)
class Bubble:
    x: float
    """FLOPs per byte. What only moves bytes stands leftmost, as far below the slope as it is below the bandwidth."""
    y: float
    """FLOP/s."""
    ceiling: float | None
    """FLOP/s at its floor: straight above."""


@dataclass(frozen=True, slots=True)
class Ceiling:
    """A line from where it begins to where it ends."""

    label: str
    """Empty where a neighbour's label speaks for it too."""
    short: str
    """The same where there is no room for numbers."""
    x: float
    y: float
    x_end: float
    y_end: float
    slope: bool
    used: bool
    """Whether an op of this step has it above its head."""


@dataclass(frozen=True, slots=True)
class RooflineView:
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    ceilings: tuple[Ceiling, ...]
    bubbles: tuple[Bubble | None, ...]
    """One for each op, in their order; None where its work, its time or the machine is unknown."""
    missing: str | None
    """Why there is nothing to draw."""
    longest_s: float = 0.0
    """Of all ops, those that have no place here too: a bubble is as large as its time beside theirs."""
    note: str | None = None
    """How much of the time has no place here, if it is much."""


def roofline_view(exam: Exam, ops: Sequence[OpLine]) -> RooflineView:
    roofline = roofline_of(exam.ceilings)
    if not roofline.slopes or not roofline.roofs:
        return RooflineView(1, 10, 1, 10, (), (None,) * len(ops), "the ceilings of this machine are not known")
    x_low, x_high = _intensities(roofline, ops)
    bubbles = tuple(_bubble(line, x_low * MARGIN / 1.25, x_high) for line in ops)
    top = max(roof.per_s for roof in roofline.roofs) * MARGIN
    lowest = _lowest([(bubble.y, line.seconds) for bubble, line in zip(bubbles, ops, strict=True) if bubble], top)
    y_low = max(min(lowest / MARGIN, x_low * roofline.slopes[0].per_s), top / 10**MOST_DECADES)
    return RooflineView(
        x_low=x_low,
        x_high=x_high,
        y_low=y_low,
        y_high=top,
        ceilings=tuple(_ceilings(roofline, _modes(exam), x_low, x_high, y_low)),
        bubbles=bubbles,
        missing=None if any(bubbles) else "no op of known work was timed",
        longest_s=max((line.seconds for line in ops), default=0.0),
        note=_unplaced([line.share for line in ops if line.regime == Regime.UNCOUNTED]),
    )


def _unplaced(shares: Sequence[float]) -> str | None:
    if sum(shares) < NOTABLE:
        return None
    return f"ops of unknown work have no place here: {units.percent(sum(shares), 0)} of the step"


def _lowest(rates: list[tuple[float, float]], top: float) -> float:
    """The rate that all but a few of the seconds reach: what is slower still stands at the lower edge."""
    left_s = UNSEEN * sum(seconds for _, seconds in rates)
    for rate, seconds in sorted(rates):
        left_s -= seconds
        if left_s < 0:
            return rate
    return top


def _intensities(roofline: Roofline, ops: Iterable[OpLine]) -> tuple[float, float]:
    """From below the first op or ridge to beyond the last, but no further than anybody cares to look."""
    known = [line.intensity for line in ops if line.intensity]
    rates = [roof.per_s / roofline.slopes[0].per_s for roof in roofline.roofs]
    low = max(min([*known, *rates]) / MARGIN, min(rates) / 1e3)
    return low, min(max([*known, *rates]), max(rates) * 1e3) * ROOM


def _bubble(line: OpLine, x_low: float, x_high: float) -> Bubble | None:
    if line.flops is None or line.bytes is None or not line.seconds or not (line.flops or line.bytes):
        return None
    x = min(max(x_low, line.flops / line.bytes), x_high) if line.bytes else x_high
    flops = max(line.flops, x_low * line.bytes)  # what only moves bytes, at the edge
    return Bubble(x, flops / line.seconds, flops / line.floor_s if line.floor_s else None)


def _modes(exam: Exam) -> set[str]:
    """The roofs that the step's own work can touch."""
    modes = {mode for op in exam.ran if op.work is not None for mode, flops in op.work.matrix.items() if flops}
    return {*modes, "vector fp32"}


def _ceilings(roofline: Roofline, used: set[str], x_low: float, x_high: float, y_low: float) -> Iterable[Ceiling]:
    highest = max(roof.per_s for roof in roofline.roofs)
    fastest = max(slope.per_s for slope in roofline.slopes)
    for slope in roofline.slopes:
        start = max(x_low, y_low / slope.per_s)
        label = f"{slope.label} {units.bytes_per_s(slope.per_s)}"
        used_at_all = slope is roofline.slopes[0]
        end = highest / slope.per_s
        yield Ceiling(label, slope.label, start, start * slope.per_s, end, highest, slope=True, used=used_at_all)
    for label, short, roof in _labelled(roofline.roofs):
        start = max(x_low, roof.per_s / fastest)
        yield Ceiling(label, short, start, roof.per_s, x_high, roof.per_s, slope=False, used=roof.label in used)


def _labelled(roofs: Sequence[Line]) -> Iterable[tuple[str, str, Line]]:
    """The highest of some that are close together has the names of all, and those that are equal have one number."""
    groups: list[list[Line]] = []
    for roof in sorted(roofs, key=lambda line: -line.per_s):
        if groups and groups[-1][0].per_s / roof.per_s < TOGETHER:
            groups[-1].append(roof)
        else:
            groups.append([roof])
    for group in groups:
        equal: defaultdict[str, list[str]] = defaultdict(list)
        for roof in group:
            equal[units.flops_per_s(roof.per_s)].append(roof.label)
        label = " · ".join(f"{', '.join(names)} {rate}" for rate, names in equal.items())
        yield label, " · ".join(roof.label for roof in group), group[0]
        yield from (("", "", roof) for roof in group[1:])
