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
from statistics import median, quantiles

from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.columns import KINDS, Trace
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

_WAITING = ("Synchronize",)
_COPYING = ("Memcpy",)


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
    rows = [row for row in columns.rows(SpanKind.RUNTIME) if "LaunchKernel" in trace.name_of(row)]
    if len(rows) < FEWEST_LAUNCHES:
        return 1.0
    return quantiles([columns.us[row] * 1e-6 for row in rows], n=4)[0] / USUAL_LAUNCH_S


@dataclass(frozen=True, slots=True)
class Piece:
    """Of what a request asks for: when it starts after the first of them, and how long it takes."""

    row: int
    stream: int
    offset_s: float
    seconds: float
    gap_s: float
    """Before it, if it had to wait in line."""


@dataclass(frozen=True, slots=True)
class Request:
    """A call of the host that asks the device for something or waits for it."""

    stretch_s: float
    """Of the host's own, since the request before."""
    rows: Mapping[SpanKind, int]
    """That were recorded in it."""
    call_s: float
    pieces: tuple[Piece, ...]
    waits: bool


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
    own = [undistorted_s(request, cost) for request in requests]
    now_s = began_s = ended_s = 0.0
    free_s: dict[int, float] = {}
    launched: dict[int, float] = {}
    started: dict[int, float] = {}
    for _ in range(LAPS):
        began_s, ended_s = now_s, _end_s(now_s, free_s)
        for request, host_s in zip(requests, own, strict=True):
            now_s += host_s
            first_s = now_s + LAUNCH_LATENCY_S
            for number, piece in enumerate(request.pieces):
                earliest_s = free_s[piece.stream] + piece.gap_s if piece.stream in free_s else 0.0
                start_s = max(first_s + piece.offset_s, earliest_s)
                first_s = start_s if number == 0 else first_s
                free_s[piece.stream] = start_s + piece.seconds
                launched[piece.row], started[piece.row] = now_s - began_s, start_s - began_s
            if request.waits:
                now_s = _end_s(now_s, free_s)
    return Play(max(_end_s(now_s, free_s) - ended_s, sum(own)), sum(own), launched, started)


def _end_s(now_s: float, free_s: Mapping[int, float]) -> float:
    return max([now_s, *free_s.values()])


def undistorted_s(request: Request, cost: Cost) -> float:
    """The host's stretch before a request, and the call, without what recording them took."""
    recording_s = (
        cost.op * request.rows.get(SpanKind.OP, 0)
        + cost.call * request.rows.get(SpanKind.RUNTIME, 0)
        + cost.python * request.rows.get(SpanKind.PYTHON, 0)
    )
    whole_s = request.stretch_s + request.call_s
    return max(AT_LEAST * whole_s, whole_s - recording_s)


@dataclass(frozen=True, slots=True)
class _Counting:
    """Starts of the rows of each kind, to count those in a stretch."""

    starts: Mapping[SpanKind, Sequence[float]]

    def within(self, start_us: float, end_us: float) -> dict[SpanKind, int]:
        return {kind: bisect_left(found, end_us) - bisect_left(found, start_us) for kind, found in self.starts.items()}


def requests_of(trace: Trace, step: Step, rows: Sequence[int]) -> list[Request]:
    """The requests of a step in the order of the host, from the rows of its stretch; at its end, what follows them."""
    columns = trace.columns
    device: defaultdict[int, list[int]] = defaultdict(list)
    for one in step.device:
        if one.call is not None:
            device[one.call].append(one.row)
    calls = sorted(
        (row for row in rows if KINDS[columns.kind[row]] is SpanKind.RUNTIME and (row in device or _waits(trace, row))),
        key=columns.start_us.__getitem__,
    )
    usual_us = min(FREE_LAUNCH_S * 1e6, median([columns.us[row] for row in calls if row in device] or [0.0]))
    counting = _counting(trace, rows)
    gaps = _queued_gaps_s(trace, step)
    return [
        *_requests(trace, step, calls, device, counting, gaps, usual_us),
        _last(trace, step, calls, counting),
    ]


def _requests(
    trace: Trace,
    step: Step,
    calls: Sequence[int],
    device: Mapping[int, list[int]],
    counting: _Counting,
    gaps: Mapping[int, float],
    usual_us: float,
) -> Iterator[Request]:
    columns = trace.columns
    until_us = step.start_us
    for call in calls:
        start_us, us = columns.start_us[call], columns.us[call]
        pure_wait = _waits(trace, call)
        waits = pure_wait or (us > USUAL * usual_us and any(word in trace.name_of(call) for word in _COPYING))
        yield Request(
            stretch_s=max(0.0, start_us - until_us) * 1e-6,
            rows=counting.within(until_us, start_us + us),
            call_s=min(us, usual_us) * 1e-6 if waits or us > USUAL * usual_us else us * 1e-6,
            pieces=tuple(_pieces(trace, device.get(call, ()), gaps)),
            waits=waits,
        )
        until_us = max(until_us, start_us + us)


def _last(trace: Trace, step: Step, calls: Sequence[int], counting: _Counting) -> Request:
    columns = trace.columns
    until_us = max((columns.start_us[call] + columns.us[call] for call in calls), default=step.start_us)
    rest_us = max(0.0, step.end_us - until_us)
    return Request(rest_us * 1e-6, counting.within(until_us, step.end_us), 0.0, (), waits=False)


def _pieces(trace: Trace, rows: Sequence[int], gaps: Mapping[int, float]) -> Iterator[Piece]:
    """Kernels of one call are a graph's, and keep their distances; a wait between them is the device's own."""
    columns = trace.columns
    ordered = sorted(rows, key=columns.start_us.__getitem__)
    for row in ordered:
        offset_us = columns.start_us[row] - columns.start_us[ordered[0]]
        yield Piece(row, columns.lane[row], offset_us * 1e-6, columns.us[row] * 1e-6, gaps.get(row, QUEUED_GAP_S))


def _queued_gaps_s(trace: Trace, step: Step) -> dict[int, float]:
    """Before each kernel that had been asked for when its stream was free; before others as usual there."""
    columns = trace.columns
    found: dict[int, float] = {}
    free_us: dict[int, float] = {}
    for one in step.device:
        lane, start_us = columns.lane[one.row], columns.start_us[one.row]
        asked_us = start_us if one.call is None else columns.start_us[one.call] + columns.us[one.call]
        if lane in free_us and asked_us <= free_us[lane] <= start_us:
            found[one.row] = (start_us - free_us[lane]) * 1e-6
        free_us[lane] = start_us + columns.us[one.row]
    usual_s = median(found.values()) if found else QUEUED_GAP_S
    return {one.row: found.get(one.row, usual_s) for one in step.device}


def _counting(trace: Trace, rows: Sequence[int]) -> _Counting:
    starts: defaultdict[SpanKind, list[float]] = defaultdict(list)
    for row in rows:
        kind = KINDS[trace.columns.kind[row]]
        if kind in (SpanKind.OP, SpanKind.RUNTIME, SpanKind.PYTHON):
            starts[kind].append(trace.columns.start_us[row])
    return _Counting({kind: sorted(found) for kind, found in starts.items()})


def _waits(trace: Trace, row: int) -> bool:
    name = trace.name_of(row)
    return any(word in name for word in _WAITING)


@dataclass(frozen=True, slots=True)
class Played:
    """A recorded step with its host's rows, and how it would run without the profiler."""

    step: Step
    rows: Sequence[int]
    requests: Sequence[Request]
    play: Play
