"""Treatments as a waterfall, from the step as it was to its floors: what each was predicted and measured to bring."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from math import prod

from gobrrr import units
from gobrrr.report.plain import plain
from gobrrr.treat.outcome import Advice, Kept, NotTried, Treated


@dataclass(frozen=True, slots=True)
class Level:
    """A step time of the waterfall, with where it came from."""

    name: str
    kind: str
    """`before`, `kept`, `after`, `floor`."""
    from_s: float
    to_s: float
    predicted_s: float | None
    """Where the treatment was predicted to bring it."""

    @property
    def said(self) -> str:
        return f"{'→ ' if self.kind == 'kept' else ''}{units.seconds(self.to_s)}"


@dataclass(frozen=True, slots=True)
class KeptLine:
    name: str
    predicted: float
    measured: float
    interval: str
    numerics: str
    cost: str
    """When it was ready, when that is paid back, and the memory with it."""
    by_hand: str


@dataclass(frozen=True, slots=True)
class LeftLine:
    """A treatment that was rejected, or those that were not tried for one reason."""

    name: str
    predicted: float | None
    """None where it was not tried."""
    ratio: float | None
    """Measured, or the most that it could have brought."""
    reason: str


@dataclass(frozen=True, slots=True)
class AdviceLine:
    """What is left to the author."""

    title: str
    """With its code, and what is at stake."""
    evidence: tuple[str, ...]
    treatment: str


@dataclass(frozen=True, slots=True)
class TreatmentView:
    target: str
    machine: str
    verdict: str
    memory: str | None
    """Before and after; None where nobody counts it, or nothing has changed."""
    levels: tuple[Level, ...]
    kept: tuple[KeptLine, ...]
    rejected: tuple[LeftLine, ...]
    not_tried: tuple[LeftLine, ...]
    advice: tuple[AdviceLine, ...] | None
    """None where it is unknown."""
    doubts: tuple[str, ...]


UNKNOWN_ADVICE = "unknown: the step was not examined as treated"


def treatment_view(found: Treated) -> TreatmentView:
    return TreatmentView(
        target=plain(found.target),
        machine=plain(found.machine),
        verdict=_verdict(found),
        memory=_memory(found.memory_before_bytes, found.memory_after_bytes) if found.kept else None,
        levels=tuple(_levels(found)),
        kept=tuple(map(_kept, found.kept)),
        rejected=tuple(
            LeftLine(plain(one.treatment), one.predicted, one.measured, plain(one.reason)) for one in found.rejected
        ),
        not_tried=tuple(_not_tried(found.not_tried)),
        advice=None if found.advice is None else tuple(map(_advice, found.advice)),
        doubts=tuple(map(plain, found.warnings)),
    )


def _not_tried(left: Iterable[NotTried]) -> Iterator[LeftLine]:
    """Those of one reason on one line."""
    alike: defaultdict[tuple[str, float | None], list[str]] = defaultdict(list)
    for one in left:
        alike[one.reason, one.bound].append(one.treatment)
    for (reason, bound), names in alike.items():
        yield LeftLine(plain(", ".join(names)), None, bound, plain(reason))


def _advice(one: Advice) -> AdviceLine:
    stake = "" if one.seconds_at_stake is None else f", {units.seconds(one.seconds_at_stake)} at stake"
    title = plain(f"{'' if one.code is None else f'{one.code} '}{one.title}{stake}")
    return AdviceLine(title, tuple(map(plain, one.evidence)), plain(one.treatment))


def _verdict(found: Treated) -> str:
    spent = f"found in {units.seconds(found.spent_s)}"
    if not found.kept and not found.rejected:
        return f"nothing was tried ({units.seconds(found.baseline_s)}); ended after {units.seconds(found.spent_s)}"
    if not found.kept:
        open_ones = any(one.reason.startswith("cannot decide") for one in found.rejected)
        makes = "is known to make" if open_ones else "makes"
        return f"nothing that was tried {makes} this step faster ({units.seconds(found.baseline_s)}); {spent}"
    interval = f"{units.times(found.speedup_low)} to {units.times(found.speedup_high)}"
    times = f"{units.seconds(found.baseline_s)} → {units.seconds(found.treated_s)}{_doubt(found)}"
    won = f"{units.times(found.speedup)} ({interval}), {units.times(found.predicted_speedup)} was predicted"
    return f"{times}: {won}{_of_floor(found)}; {spent}"


def _of_floor(found: Treated) -> str:
    floor_s = found.fused_floor_s
    if not floor_s:
        return ""
    if floor_s > found.treated_s:
        return "; faster than the fused floor"
    reached = units.percent(floor_s / found.treated_s, 0)
    return f"; at {reached} of what this machine can do (fused floor {units.seconds(floor_s)})"


def _doubt(found: Treated) -> str:
    low_s, high_s = found.treated_low_s, found.treated_high_s
    if low_s is None or high_s is None:
        return ""
    return f" ± {units.percent((high_s - low_s) / 2 / found.treated_s, 1)}"


def _memory(before: int | None, after: int | None) -> str | None:
    if before is None or after is None:
        return None
    return f"memory {units.capacity(before)} → {units.capacity(after)}"


def _levels(found: Treated) -> Iterator[Level]:
    """The first and last levels are of the last race, and each treatment gains between what it gained in its own.

    Back from the last: a machine may have changed its mind between two races, most of all the host of a step that
    waits for it, as steps do before they are treated.
    """
    yield Level("as it was", "before", 0.0, found.baseline_s, None)
    for place, one in enumerate(found.kept):
        step_s = found.treated_s * prod(later.measured for later in found.kept[place + 1 :])
        without_s = step_s * one.measured
        yield Level(plain(one.treatment), "kept", without_s, step_s, without_s / one.predicted)
    yield Level("treated", "after", 0.0, found.treated_s, found.baseline_s / found.predicted_speedup)
    for name, floor_s in (("fused floor", found.fused_floor_s), ("compulsory floor", found.compulsory_floor_s)):
        if floor_s is not None:
            yield Level(name, "floor", 0.0, floor_s, None)


def _kept(one: Kept) -> KeptLine:
    check = one.numerics
    error = "" if check.worst_error is None else f", worst error {check.worst_error:.2g}"
    error += ", compared without fp64 or by chance alone" if check.weak else ""
    return KeptLine(
        name=plain(one.treatment),
        predicted=one.predicted,
        measured=one.measured,
        interval=f"{units.times(one.low)} to {units.times(one.high)}",
        numerics=plain(f"{check.cls}{error}{'' if check.passed else ', FAILED'}"),
        cost="; ".join(_costs(one)),
        by_hand=one.by_hand,
    )


NOTABLE_S = 1.0
"""Of first steps: less is nothing to win back."""


def _costs(one: Kept) -> Iterator[str]:
    if one.compile_s > NOTABLE_S:
        paid = "" if one.break_even_steps is None else f", paid back after {units.count(one.break_even_steps, 2)} steps"
        yield f"ready after {units.seconds(one.compile_s, 2)}{paid}"
    if one.memory_bytes is not None:
        yield f"memory {units.capacity(one.memory_bytes)}"
