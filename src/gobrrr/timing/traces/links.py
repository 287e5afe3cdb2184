"""Which call asked for what ran on the device, and in which step."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import TypeAlias

from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.categories import STEP
from gobrrr.timing.traces.columns import NONE, Trace

SAME = 0.995
"""Of kernels that have the same name one period later. Layers repeat too, but a model's ends are more than the rest."""

MOST_ANCHORS = 64
"""Names tried as the first kernel of a period."""

MOST_SIGHTS = 10
"""Of one name, up to which it may come again within a period."""

GLANCE = 64
"""Kernels looked at before all are."""


Launched: TypeAlias = tuple[int, int | None]
"""The row of something that ran on a device, and the row of the call that asked for it; None if the file does not hold
it: it was made before the recording, or dropped."""


@dataclass(frozen=True, slots=True)
class Step:
    """A stretch of the host, and what it asked for there, by start."""

    start_us: float
    end_us: float
    device: tuple[Launched, ...]


@dataclass(frozen=True, slots=True)
class Steps:
    steps: tuple[Step, ...]
    found_by: str
    """`annotation`, `period` or `whole`."""
    outside: int
    """Of what ran, asked for outside of all steps, or nobody knows where."""


def launched(trace: Trace) -> list[Launched]:
    """Everything that ran on a device, by start: by its number first, by an arrow second, else alone."""
    columns = trace.columns
    rows = sorted(trace.rows(SpanKind.KERNEL, SpanKind.TRANSFER), key=columns.start_us.__getitem__)
    number, start_us = columns.correlation, columns.start_us
    numbers = list(map(number.__getitem__, rows))
    if NONE in numbers:
        arrows = _arrows(trace)
        numbers = [
            arrows.get((columns.lane[row], start_us[row]), NONE) if one == NONE else one
            for row, one in zip(rows, numbers, strict=True)
        ]
    calls = trace.rows(SpanKind.RUNTIME)
    by_number = dict(zip(map(number.__getitem__, calls), calls, strict=True))
    by_number.pop(NONE, None)
    alike = _alike(trace, calls) if len(by_number) < len(calls) else {}
    if not alike:
        return list(zip(rows, map(by_number.get, numbers), strict=True))
    return [
        (row, _last_before(trace, alike[one], row) if one in alike else by_number.get(one))
        for row, one in zip(rows, numbers, strict=True)
    ]


def _alike(trace: Trace, calls: Sequence[int]) -> dict[int, list[int]]:
    """Calls with one number, where there are several: in merged files those of several processes collide."""
    found: defaultdict[int, list[int]] = defaultdict(list)
    for call in calls:
        found[trace.columns.correlation[call]].append(call)
    return {number: own for number, own in found.items() if len(own) > 1 and number != NONE}


def _last_before(trace: Trace, calls: Sequence[int], row: int) -> int | None:
    start_us = trace.columns.start_us
    before = [call for call in calls if start_us[call] <= start_us[row]]
    return max(before, key=start_us.__getitem__, default=None)


def _arrows(trace: Trace) -> dict[tuple[int, float], int]:
    """Number of the arrow that ends at a place and time; read only where numbers are missing."""
    columns = trace.columns
    by_lane: dict[tuple[int, float], int] = {}
    for row in trace.rows(SpanKind.ASKED):
        by_lane[columns.lane[row], columns.start_us[row]] = columns.correlation[row]
    return by_lane


def find_steps(trace: Trace, ran: Sequence[Launched]) -> Steps:
    """By the profiler's marks on the host, else the shortest repeating period of launches, else all as one."""
    columns = trace.columns
    marks = trace.named(trace.rows(SpanKind.ANNOTATION), STEP)
    stretches = sorted({(columns.start_us[row], columns.start_us[row] + columns.us[row]) for row in marks})
    if marked := _without_overlaps(stretches):
        return _steps(trace, ran, marked, "annotation")
    periods = _periods(trace, ran)
    if periods:
        return _steps(trace, ran, periods, "period")
    return _steps(trace, ran, [_whole(trace)], "whole")


def _without_overlaps(stretches: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """From each start to the next: between two marks the host works for neither, but work it is."""
    starts = [start for start, _ in stretches]
    ends = [*starts[1:], *(end for _, end in stretches[-1:])]
    return [(start, follower) for start, follower in zip(starts, ends, strict=True) if follower > start]


def _whole(trace: Trace) -> tuple[float, float]:
    columns = trace.columns
    rows = trace.rows(SpanKind.OP, SpanKind.RUNTIME, SpanKind.KERNEL, SpanKind.TRANSFER, SpanKind.ANNOTATION)
    starts = [columns.start_us[row] for row in rows]
    return min(starts, default=0.0), max((columns.start_us[row] + columns.us[row] for row in rows), default=0.0)


def _periods(trace: Trace, ran: Sequence[Launched]) -> list[tuple[float, float]]:
    """Stretches from the first launch of a period to that of the next."""
    columns = trace.columns
    known = sorted(((call, row) for row, call in ran if call is not None), key=lambda one: columns.start_us[one[0]])
    names = [columns.name[row] for _, row in known]
    found = shortest_period(names)
    if found is None:
        return []
    first, length = found
    starts = [columns.start_us[known[place][0]] for place in range(first, len(known), length)]
    return [(start, end) for start, end in pairwise(starts) if end > start]


def shortest_period(names: Sequence[int]) -> tuple[int, int] | None:
    """Where the first period begins and how long it is; None if nothing repeats.

    Its length is the distance between two sights of one name, of the rarest that come again. It has most of the names
    there are: what has few is a loop at the end of a step, as an optimizer's over its parameters.
    """
    places: defaultdict[int, list[int]] = defaultdict(list)
    for place, name in enumerate(names):
        places[name].append(place)
    rare = sorted((sights for sights in places.values() if len(sights) > 1), key=len)[:MOST_ANCHORS]
    lengths = sorted({(again - sights[0], sights[0]) for sights in rare for again in sights[1:MOST_SIGHTS]})
    return next(
        (
            (first, length)
            for length, first in lengths
            if _repeats(names, first, length) and 2 * len(set(names[first : first + length])) >= len(places)
        ),
        None,
    )


def _repeats(names: Sequence[int], first: int, length: int) -> bool:
    names, later = names[first:-length], names[first + length :]
    if len(later) < length // 2 or sum(map(int.__ne__, names[:GLANCE], later[:GLANCE])) > GLANCE // 16:
        return False
    return sum(map(int.__eq__, names, later)) >= SAME * len(later)


def _steps(trace: Trace, ran: Sequence[Launched], stretches: Sequence[tuple[float, float]], found_by: str) -> Steps:
    """Device work belongs to the step that asked for it, whenever it ran.

    What nobody asked for belongs to the step of what ran before it; at the beginning, to steps before the recording.
    """
    device: list[list[Launched]] = [[] for _ in stretches]
    places: list[int | None] = [0] * len(ran) if found_by == "whole" else _places(trace, ran, stretches)
    for one, place in zip(ran, places, strict=True):
        if place is not None:
            device[place].append(one)
    steps = tuple(Step(*stretch, tuple(own)) for stretch, own in zip(stretches, device, strict=True))
    return Steps(steps, found_by, places.count(None))


def _places(trace: Trace, ran: Sequence[Launched], stretches: Sequence[tuple[float, float]]) -> list[int | None]:
    start_us = trace.columns.start_us
    calls = [call for _, call in ran if call is not None]
    if not calls:
        return _at([start_us[row] for row, _ in ran], stretches)
    asked = _at(list(map(start_us.__getitem__, calls)), stretches)
    if len(asked) == len(ran):
        return asked
    places: list[int | None] = []
    known = iter(asked)
    for _, call in ran:
        before = places[-1] if places else None
        places.append(before if call is None else next(known))
    return places


def _at(moments_us: Sequence[float], stretches: Sequence[tuple[float, float]]) -> list[int | None]:
    """In which of the disjoint, sorted stretches each moment lies."""
    bounds = list(chain.from_iterable(stretches))
    inside = [place // 2 if place % 2 else None for place in range(len(bounds) + 1)]
    return [inside[bisect_right(bounds, us)] for us in moments_us]


def is_graph(call: str) -> bool:
    return "GraphLaunch" in call
