"""The step as it would run without the profiler: the host's time less what recording took, played again.

Recording costs the host something for every op, call and Python function it writes down, and the device nothing. So the
recorded stretches of the host between two requests are shortened by what lies in them, and host and device run again
side by side: the device does what it is asked for in order, and the host waits where it waited. What one row costs
depends on the machine that nobody can ask any more, so there are three answers: with the usual cost, the least and the
most.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import inf
from operator import sub
from statistics import median, quantiles
from typing import NamedTuple

from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.columns import NUMBER, Trace
from gobrrr.timing.traces.links import Step

LAPS = 2
"""Rounds of one step: the first shows how far the host gets ahead of the device."""

AT_LEAST = 0.25
"""Of a stretch of the host that remains, however many rows lie in it: it did something."""

LAUNCH_LATENCY_S = 2e-6
"""From the end of a launch to the start of its kernel on an idle device, at the best."""

QUEUED_GAP_S = 1e-6
"""Between two kernels that wait in line, where none were seen."""

USUAL = 3
"""A call that takes more than so many times the usual launch waited for the device."""

FREE_LAUNCH_S = 1e-5
"""A launch into a queue with room takes 2 to 5 µs, recorded up to twice that."""

_OP, _CALL, _PYTHON = (NUMBER[kind] for kind in (SpanKind.OP, SpanKind.RUNTIME, SpanKind.PYTHON))
WAITING = ("Synchronize", "urEventWait", "urQueueFinish")
"""In the names of calls that wait for the device: every vendor's but Intel's."""

_COPYING = ("Memcpy", "MemoryCopy")


@dataclass(frozen=True, slots=True)
class Cost:
    """Of recording one row, in seconds."""

    op: float
    call: float
    python: float

    def times(self, factor: float) -> "Cost":
        return Cost(factor * self.op, factor * self.call, factor * self.python)


USUAL_COST = Cost(5.0e-6, 1.0e-6, 0.4e-6)
LEAST_COST = Cost(1.5e-6, 0.3e-6, 0.1e-6)
MOST_COST = Cost(6.5e-6, 2.0e-6, 1.2e-6)
"""Of an H200's host, with shapes: a BERT-large step that the host limits takes 69.5 ms, and 155 ms with 16586 ops and
2848 calls recorded. The least is what a GPT-2 step seems to pay, part of which the device hides."""

USUAL_LAUNCH_S = 7.5e-6
"""Recorded there; a host that is slower or quicker at it is so at recording."""

FEWEST_LAUNCHES = 16
"""From which the host's speed is told."""


def slowness(trace: Trace) -> float:
    """Of the host, beside the one whose costs are known, by the quicker of its launches: the others wait in line."""
    columns = trace.columns
    name, us, launches = columns.name, columns.us, trace.names_with("LaunchKernel")
    found = [us[row] * 1e-6 for row in trace.rows(SpanKind.RUNTIME) if name[row] in launches]
    return 1.0 if len(found) < FEWEST_LAUNCHES else quantiles(found, n=4)[0] / USUAL_LAUNCH_S


class Piece(NamedTuple):
    """Of what a request asks for: when it starts after the first of them, and how long it takes."""

    row: int
    stream: int
    offset_s: float
    seconds: float
    gap_s: float
    """Before it, if it had to wait in line."""


class Request(NamedTuple):
    """A call of the host that asks the device for something or waits for it."""

    stretch_s: float
    """Of the host's own, since the request before."""
    rows: "Rows"
    """That were recorded in it."""
    call_s: float
    pieces: tuple[Piece, ...]
    waits: bool


class Rows(NamedTuple):
    """How many of each kind that costs something to record."""

    ops: int
    calls: int
    python: int


@dataclass(frozen=True, slots=True)
class Play:
    """One step, played again."""

    step_s: float
    host_s: float
    """What the host needs for it, waiting left out."""
    launched_s: Mapping[int, float]
    """By the row of what was asked for, from the step's beginning."""
    start_s: Mapping[int, float]


def play(requests: Sequence[Request], cost: Cost) -> Play:
    """Twice over; the second lap is the step."""
    own = undistorted_s(requests, cost)
    now_s = began_s = ended_s = 0.0
    free_s: dict[int, float] = {}
    moments: list[tuple[int, float, float]] = []
    for _ in range(LAPS):
        began_s, ended_s = now_s, _end_s(now_s, free_s)
        moments.clear()
        for (_, _, _, pieces, waits), own_s in zip(requests, own, strict=True):
            now_s += own_s
            first_s, is_first = now_s + LAUNCH_LATENCY_S, True
            for row, stream, offset_s, seconds, gap_s in pieces:
                start_s = first_s + offset_s
                in_line_s = free_s.get(stream, -inf) + gap_s
                start_s = max(start_s, in_line_s)
                if is_first:
                    first_s, is_first = start_s, False
                free_s[stream] = start_s + seconds
                moments.append((row, now_s, start_s))
            if waits:
                now_s = _end_s(now_s, free_s)
    host_s = sum(own)
    return Play(
        max(_end_s(now_s, free_s) - ended_s, host_s),
        host_s,
        {row: asked_s - began_s for row, asked_s, _ in moments},
        {row: start_s - began_s for row, _, start_s in moments},
    )


def _end_s(now_s: float, free_s: Mapping[int, float]) -> float:
    return max([now_s, *free_s.values()])


def undistorted_s(requests: Sequence[Request], cost: Cost) -> list[float]:
    """Of each, the host's stretch before it and the call, without what recording them took."""
    op_s, made_s, python_s = cost.op, cost.call, cost.python
    found = []
    for stretch_s, (ops, calls, python), call_s, _, _ in requests:
        whole_s = stretch_s + call_s
        least_s, own_s = AT_LEAST * whole_s, whole_s - (op_s * ops + made_s * calls + python_s * python)
        found.append(max(least_s, own_s))
    return found


def requests_of(trace: Trace, step: Step, rows: Sequence[int]) -> list[Request]:
    """The requests of a step in the order of the host, from the rows of its stretch; at its end, what follows them."""
    columns = trace.columns
    device: defaultdict[int, list[int]] = defaultdict(list)
    for row, call in step.device:
        if call is not None:
            device[call].append(row)
    kind, waiting = columns.kind, trace.names_with(*WAITING)
    calls = sorted(
        (row for row in rows if kind[row] == _CALL and (row in device or columns.name[row] in waiting)),
        key=columns.start_us.__getitem__,
    )
    return list(_requests(trace, step, calls, device, _starts(trace, rows)))


def _requests(
    trace: Trace,
    step: Step,
    calls: Sequence[int],
    device: Mapping[int, Sequence[int]],
    starts: Sequence[Sequence[float]],
) -> Iterator[Request]:
    columns = trace.columns
    waiting, copying = trace.names_with(*WAITING), trace.names_with(*_COPYING)
    gaps = _queued_gaps_s(trace, step)
    usual_us = min(FREE_LAUNCH_S * 1e6, median([columns.us[row] for row in calls if row in device] or [0.0]))
    ends_us = [columns.start_us[call] + columns.us[call] for call in calls]
    until_us = list(accumulate(ends_us, max, initial=step.start_us))
    recorded = list(map(Rows, *(_begun(own, step.start_us, [*ends_us, step.end_us]) for own in starts)))
    for call, before_us, rows in zip(calls, until_us, recorded, strict=False):
        us, name = columns.us[call], columns.name[call]
        long = us > USUAL * usual_us
        waits = name in waiting or (long and name in copying)
        stretch_us = max(0.0, columns.start_us[call] - before_us)
        call_us = min(us, usual_us) if waits or long else us
        yield Request(stretch_us * 1e-6, rows, call_us * 1e-6, _pieces(trace, device.get(call, ()), gaps), waits)
    yield Request(max(0.0, step.end_us - until_us[-1]) * 1e-6, recorded[-1], 0.0, (), waits=False)


def _begun(starts_us: Sequence[float], from_us: float, ends_us: Sequence[float]) -> list[int]:
    """How many of these sorted starts lie before each end, and not before the latest of the ends before it."""
    before = [bisect_left(starts_us, us) for us in ends_us]
    return list(map(sub, before, accumulate(before, max, initial=bisect_left(starts_us, from_us))))


def _pieces(trace: Trace, rows: Sequence[int], gaps: Mapping[int, float]) -> tuple[Piece, ...]:
    """Kernels of one call are a graph's, and keep their distances; a wait between them is the device's own."""
    lane, start_us, us = trace.columns.lane, trace.columns.start_us, trace.columns.us
    return tuple(
        [Piece(row, lane[row], (start_us[row] - start_us[rows[0]]) * 1e-6, us[row] * 1e-6, gaps[row]) for row in rows]
    )


def _queued_gaps_s(trace: Trace, step: Step) -> dict[int, float]:
    """Before each kernel that had been asked for when its stream was free; before others as usual there."""
    columns = trace.columns
    found: dict[int, float] = {}
    free_us: dict[int, float] = {}
    for row, call in step.device:
        lane, start_us = columns.lane[row], columns.start_us[row]
        asked_us = start_us if call is None else columns.start_us[call] + columns.us[call]
        if lane in free_us and asked_us <= free_us[lane] <= start_us:
            found[row] = (start_us - free_us[lane]) * 1e-6
        free_us[lane] = start_us + columns.us[row]
    usual_s = median(found.values()) if found else QUEUED_GAP_S
    return {row: found.get(row, usual_s) for row, _ in step.device}


def _starts(trace: Trace, rows: Sequence[int]) -> list[list[float]]:
    """Of the rows of each kind that costs something to record, in order."""
    kind, start_us = trace.columns.kind, trace.columns.start_us
    return [sorted([start_us[row] for row in rows if kind[row] == one]) for one in (_OP, _CALL, _PYTHON)]


@dataclass(frozen=True, slots=True)
class Played:
    """A recorded step with its host's rows, and how it would run without the profiler."""

    step: Step
    rows: Sequence[int]
    requests: Sequence[Request]
    play: Play
