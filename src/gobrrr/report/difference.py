"""Two steps side by side, ready to be laid out: bars on one scale, and the ops that changed."""

from collections.abc import Iterator
from dataclasses import dataclass

from gobrrr.diagnose.compare import Comparison, OpChange, Pair
from gobrrr.report.compare import verdict
from gobrrr.report.examined import Compared
from gobrrr.report.plain import plain
from gobrrr.report.view import StepView, step_view

MOST_CHANGES = 200


@dataclass(frozen=True, slots=True)
class SideView:
    name: str
    view: StepView
    length: float
    """Of its bar: 1 for the longer step; both are 1 between different machines."""


@dataclass(frozen=True, slots=True)
class RegimeLine:
    regime: str
    seconds: Pair
    shares: Pair
    change_s: float | None


@dataclass(frozen=True, slots=True)
class ChangeLine:
    name: str
    change: str
    seconds: Pair
    change_s: float | None
    length: float
    """Of its bar: 1 for the largest change."""
    of_ceiling: Pair
    calls: Pair
    regimes: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True)
class DifferenceView:
    verdict: str
    faster: bool | None
    same_machine: bool
    """Between others no seconds are compared."""
    sides: tuple[SideView, SideView]
    regimes: tuple[RegimeLine, ...]
    idle: tuple[tuple[str, Pair], ...]
    changes: tuple[ChangeLine, ...]
    left_out: int


def difference_view(compared: Compared) -> DifferenceView:
    found = compared.comparison
    longer_s = max(found.before.step_s, found.after.step_s)
    views = [("before", step_view(compared.before.diagnosis)), ("after", step_view(compared.after.diagnosis))]
    before, after = (
        SideView(name, view, view.step_s / longer_s if found.same_machine else 1.0) for name, view in views
    )
    most_s = max((abs(_change_s(one.seconds) or 0.0) for one in found.ops), default=0.0)
    return DifferenceView(
        verdict=plain(verdict(found)),
        faster=None if found.speedup is None else found.speedup >= 1,
        same_machine=found.same_machine,
        sides=(before, after),
        regimes=tuple(_regimes(found)),
        idle=tuple((plain(cause.replace("_", " ")), pair) for cause, pair in found.idle_causes_s.items()),
        changes=tuple(_change(one, most_s) for one in found.ops[:MOST_CHANGES]),
        left_out=max(0, len(found.ops) - MOST_CHANGES),
    )


def _regimes(found: Comparison) -> Iterator[RegimeLine]:
    for name, pair in found.seconds.items():
        if pair.before or pair.after:
            seconds = pair if found.same_machine else Pair(None, None)
            yield RegimeLine(name, seconds, found.shares[name], _change_s(seconds))


def _change(one: OpChange, most_s: float) -> ChangeLine:
    seconds = one.seconds or Pair(None, None)
    change_s = _change_s(seconds)
    return ChangeLine(
        name=plain(one.name),
        change=one.change,
        seconds=seconds,
        change_s=change_s,
        length=abs(change_s) / most_s if change_s is not None and most_s else 0.0,
        of_ceiling=one.of_ceiling,
        calls=one.calls,
        regimes=one.regimes,
    )


def _change_s(pair: Pair | None) -> float | None:
    if pair is None or pair.before is None or pair.after is None:
        return None
    return pair.after - pair.before
