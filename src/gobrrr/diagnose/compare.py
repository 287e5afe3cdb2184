"""Two diagnoses side by side: what became slower, what changed its regime, what is new and what is gone."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.diagnose.rows import OpRow
from gobrrr.errors import UsageError
from gobrrr.work.registry import canonical

NOTABLE = 0.001
"""Of the longer step: an op that changed by less is not listed."""


@dataclass(frozen=True, slots=True)
class Side:
    target: str
    machine: str
    step_s: float
    step_s_low: float
    step_s_high: float
    regime: str
    limiter: str
    busy_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Pair:
    """The same quantity of both; None where one has none."""

    before: float | None
    after: float | None


@dataclass(frozen=True, slots=True)
class OpChange:
    name: str
    change: str
    """`slower`, `faster`, `new`, `gone`."""
    seconds: Pair | None
    """None between different machines."""
    of_ceiling: Pair
    """Floor over time."""
    calls: Pair
    regimes: tuple[str | None, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    SCHEMA: ClassVar[str] = "comparison"
    VERSION: ClassVar[int] = 1

    before: Side
    after: Side
    same_machine: bool
    speedup: float | None
    """Of the step; None between different machines."""
    seconds: Mapping[str, Pair]
    """By regime, and how much of the overhead was idle."""
    shares: Mapping[str, Pair]
    idle_causes_s: Mapping[str, Pair]
    """What the hosts did while the devices were idle, the largest change first."""
    ops: tuple[OpChange, ...]
    """The largest change first."""


def compare(before: Diagnosis, after: Diagnosis, *, across_machines: bool = False) -> Comparison:
    """Seconds of one machine; of two only if told, and then fractions of what each can do."""
    same = before.machine.name == after.machine.name
    if not same and not across_machines:
        raise UsageError(
            f"{before.target} ran on {before.machine.name} and {after.target} on {after.machine.name}, whose seconds "
            f"cannot be compared: --across-machines compares fractions of their ceilings"
        )
    return Comparison(
        before=_side(before),
        after=_side(after),
        same_machine=same,
        speedup=before.step_s / after.step_s if same else None,
        seconds={name: Pair(before.seconds.get(name), after.seconds.get(name)) for name in before.seconds},
        shares={name: Pair(_share(before, name), _share(after, name)) for name in before.seconds},
        idle_causes_s=_causes(before.idle_causes_s or {}, after.idle_causes_s or {}),
        ops=tuple(_changes(before, after, same=same)),
    )


def _causes(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, Pair]:
    pairs = {cause: Pair(before.get(cause, 0.0), after.get(cause, 0.0)) for cause in {**before, **after}}
    return dict(sorted(pairs.items(), key=lambda item: -abs((item[1].after or 0.0) - (item[1].before or 0.0))))


def _side(one: Diagnosis) -> Side:
    return Side(
        target=one.target,
        machine=one.machine.name,
        step_s=one.step_s,
        step_s_low=one.step_s_low,
        step_s_high=one.step_s_high,
        regime=one.regime,
        limiter=one.limiter,
        busy_s=one.busy_s,
        idle_s=one.idle_s,
    )


def _share(one: Diagnosis, name: str) -> float | None:
    return None if one.shares is None else one.shares.get(name)


@dataclass(frozen=True, slots=True)
class _Rows:
    """All rows of one op."""

    seconds: float
    calls: int
    of_ceiling: float | None
    regime: str | None


_NOTHING = _Rows(0.0, 0, None, None)


def _changes(before: Diagnosis, after: Diagnosis, *, same: bool) -> list[OpChange]:
    """Of the same machine by seconds; of two by how much less of its ceiling an op reaches, weighed by its time."""
    mine, theirs = _by_name(before.ops), _by_name(after.ops)
    longer_s = max(before.step_s, after.step_s)
    steps_s = (longer_s, longer_s) if same else (before.step_s, after.step_s)
    worse = {name: _worse(mine.get(name), theirs.get(name), steps_s, same=same) for name in {**mine, **theirs}}
    names = [name for name, much in worse.items() if abs(much) >= NOTABLE]
    found = [_change(name, mine.get(name), theirs.get(name), worse[name], same=same) for name in names]
    return sorted(found, key=lambda one: -abs(worse[one.name]))


def _worse(mine: _Rows | None, theirs: _Rows | None, steps_s: tuple[float, float], *, same: bool) -> float:
    """By how much of a step; between machines nothing where one of the two fractions is not known."""
    one, other = (mine or _NOTHING).seconds / steps_s[0], (theirs or _NOTHING).seconds / steps_s[1]
    if same or mine is None or theirs is None:
        return other - one
    if mine.of_ceiling is None or theirs.of_ceiling is None:
        return 0.0
    return (mine.of_ceiling - theirs.of_ceiling) * max(one, other)


def _change(name: str, mine: _Rows | None, theirs: _Rows | None, worse: float, *, same: bool) -> OpChange:
    one, other = mine or _NOTHING, theirs or _NOTHING
    return OpChange(
        name=name,
        change="new" if mine is None else "gone" if theirs is None else "slower" if worse > 0 else "faster",
        seconds=Pair(one.seconds, other.seconds) if same else None,
        of_ceiling=Pair(one.of_ceiling, other.of_ceiling),
        calls=Pair(one.calls, other.calls),
        regimes=(one.regime, other.regime),
    )


def _by_name(rows: Iterable[OpRow]) -> dict[str, _Rows]:
    groups: defaultdict[str, list[OpRow]] = defaultdict(list)
    for row in rows:
        groups[_name(row)].append(row)
    return {name: _rows(group) for name, group in groups.items()}


def _name(row: OpRow) -> str:
    """By the ops that it does: kernels are renamed from one version of a library to the next, ops are not."""
    return f"{row.phase} {' + '.join(map(canonical, row.fused_from or ())) or row.name}"


def _rows(group: list[OpRow]) -> _Rows:
    seconds = sum(row.seconds for row in group)
    floors = [row.floor_s for row in group]
    known = sum(floor for floor in floors if floor is not None)
    whole = seconds > 0 and None not in floors
    longest = max(group, key=lambda row: row.seconds)
    return _Rows(seconds, sum(row.calls for row in group), known / seconds if whole else None, longest.regime)
