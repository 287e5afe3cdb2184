"""Idle stretches of the device, named by what the host did meanwhile. No torch here.

What they are called comes from a recording with ops, whose times are distorted: so only proportions leave this file.
How much of it is the device's own comes from the recording without ops, where the host is as quick as ever.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TypeAlias

from gobrrr.timing.timeline import Span, SpanKind, Timeline, merged
from gobrrr.work.kernel_names import COLLECTIVES

Stretch: TypeAlias = tuple[float, float]
"""From when to when."""


class Cause(StrEnum):
    """What the host did while nothing ran, the most telling first: of several at once the first is named.

    Compiling and loading data are made of ops and calls, and an op of calls: whoever is outside says more, but for
    the calls that an op did not have to make, and for what the profiler did in the midst of them.
    """

    PROFILER = "profiler"
    """Buffers that it asked for or wrote out: without it there would be none of this."""
    COMPILATION = "compilation"
    DATA_LOADING = "data_loading"
    COMMUNICATION = "communication"
    """The host at a collective: preparing it, or waiting for other ranks."""
    SYNC = "sync"
    ALLOCATION = "allocation"
    COPY = "copy"
    DISPATCH = "dispatch"
    PYTHON = "python"
    """What no span covers."""
    LAUNCH_LATENCY = "launch_latency"
    """The next kernel had been asked for: the device's own."""


_NAMES = {
    Cause.COMPILATION: re.compile(r"\(dynamo_timed\)$"),
    Cause.DATA_LOADING: re.compile(r"^enumerate\(DataLoader\)"),
    Cause.COMMUNICATION: re.compile(f"^record_param_comms|{COLLECTIVES.pattern}", re.IGNORECASE),
    Cause.SYNC: re.compile(r"^[a-z]\w+Synchronize|^ur(EventWait|QueueFinish)"),
    Cause.ALLOCATION: re.compile(
        r"^(cuda|hip|cu)(Malloc|Free|Host(Alloc|Malloc|Free|Register|Unregister)|"
        r"Mem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|AddressReserve|AddressFree))"
    ),
    Cause.COPY: re.compile(r"^(cuda|hip|cu)Memcpy|^urEnqueue\w*Memcpy|^ze\w+MemoryCopy"),
}
"""Of spans that say more than that an op ran."""

_STEP = "ProfilerStep#"
"""The profiler's own mark around a step."""


@dataclass(frozen=True, slots=True)
class Gap:
    """A stretch in which nothing ran on the device."""

    start_s: float
    asked_s: float
    """From when on the host had asked for what ran next: before, the gap is the host's, and then the device's own."""
    end_s: float
    row: int | None = None
    """Of what ran next."""


def idle_shares(linked: Timeline, timed: Timeline, steps: int) -> dict[str, float] | None:
    """Of the idle time of a step, by cause: from a recording with ops, and from so many steps without them.

    Where even the slower host of the first was in time for all kernels, every gap is the device's own.
    """
    latency = latency_share(timed, steps)
    if latency is None or not linked.device:
        return None
    host = host_causes(linked)
    whole_s = sum(host.values())
    shares = {cause.value: (1 - latency) * seconds / whole_s for cause, seconds in host.items()}
    return {**shares, Cause.LAUNCH_LATENCY.value: latency if host else 1.0}


def serial_idle_shares(recording: Timeline, dispatch_s: float, idle_s: float) -> dict[str, float]:
    """On a CPU: what dispatching costs, bounded by what there is, and what the host did between the ops."""
    dispatch = min(1.0, dispatch_s / idle_s) if idle_s > 0 else 1.0
    ops, compiling = (
        [op for op in recording.ops if _cause(op) is cause] for cause in (Cause.DISPATCH, Cause.COMPILATION)
    )
    at_work = without(merged(ops), merged(compiling))
    host = named(without([step_stretch(recording)], at_work), (*recording.annotations, *compiling))
    whole_s = sum(host.values())
    shares = {cause.value: (1 - dispatch) * seconds / whole_s for cause, seconds in host.items()}
    return {**(shares or {Cause.PYTHON.value: 1 - dispatch}), Cause.DISPATCH.value: dispatch}


def host_causes(recording: Timeline) -> dict[Cause, float]:
    """Seconds of the recording in which the device waited for the host, by what the host did."""
    waiting = [(gap.start_s, gap.asked_s) for gap in gaps(recording.device, recording, step_stretch(recording))]
    return named(waiting, (*recording.ops, *recording.runtime, *recording.annotations))


def latency_share(timed: Timeline, steps: int) -> float | None:
    """Of the idle time of the middle step, what passed after the next kernel had been asked for."""
    middle = _middle_step(timed, steps)
    if not middle:
        return None
    stretch = (_free_s(timed, steps), max(span.end_s for span in middle))
    found = gaps(middle, timed, stretch)
    idle_s = sum(gap.end_s - gap.start_s for gap in found)
    return sum(gap.end_s - gap.asked_s for gap in found) / idle_s if idle_s > 0 else None


def gap_before_s(timed: Timeline, steps: int) -> float | None:
    """From the end of the step before to the first kernel of the middle one; None if the steps cannot be told apart."""
    middle = _middle_step(timed, steps)
    return max(0.0, middle[0].start_s - _free_s(timed, steps)) if middle else None


def _middle_step(timed: Timeline, steps: int) -> Sequence[Span]:
    number, rest = divmod(len(timed.device), steps)
    return () if rest else timed.device[number * (steps // 2) : number * (steps // 2 + 1)]


def _free_s(timed: Timeline, steps: int) -> float:
    """When the device was done with what came before the middle step."""
    before = timed.device[: len(timed.device) // steps * (steps // 2)]
    return max((span.end_s for span in before), default=timed.device[0].start_s)


def gaps(device: Sequence[Span], calls: Timeline, stretch: Stretch) -> list[Gap]:
    """All of the stretch in which none of these spans, sorted by start, ran.

    What was asked for in a call that nobody saw was asked for before. The nodes of a graph come from one call, and
    all but the first had been asked for, even while that call goes on. At the end nothing has been asked for.
    """
    launched: dict[int | None, float] = {
        call.correlation: call.end_s for call in calls.runtime if call.correlation is not None
    }
    found: list[Gap] = []
    free_s, end_s = stretch
    seen: set[int | None] = set()
    for span in device:
        if span.start_s > free_s:
            asked_s = free_s if span.correlation in seen else launched.get(span.correlation, free_s)
            found.append(Gap(free_s, min(max(asked_s, free_s), span.start_s), span.start_s, span.row))
        seen.add(span.correlation)
        free_s = max(free_s, span.end_s)
    return found if free_s >= end_s else [*found, Gap(free_s, end_s, end_s)]


def step_stretch(recording: Timeline) -> Stretch:
    """From the step's first moment on the host to its last, on the host or on the device.

    The last wait for the device inside the profiler's mark is the recording's own, and the step ended before it.
    """
    host = [span for span in recording.annotations if span.name.startswith(_STEP)] or [
        *recording.ops,
        *recording.runtime,
    ]
    start_s = min((span.start_s for span in host), default=0.0)
    marked_s = max((span.end_s for span in host), default=0.0)
    own = [call for call in recording.runtime if "DeviceSynchronize" in call.name and call.start_s < marked_s]
    ended_s = own[-1].start_s if own else marked_s
    return start_s, max([ended_s, *(span.end_s for span in recording.device)])


def named(stretches: Sequence[Stretch], spans: Iterable[Span]) -> dict[Cause, float]:
    """Seconds of these disjoint, sorted stretches by what went on in them; they add up to all of it."""
    return {cause: _length_s(parts) for cause, parts in by_cause(stretches, spans).items()}


def by_cause(stretches: Sequence[Stretch], spans: Iterable[Span]) -> dict[Cause, list[Stretch]]:
    """These disjoint, sorted stretches cut up by what went on in them."""
    own: defaultdict[Cause, list[Span]] = defaultdict(list)
    for span in spans:
        own[_cause(span)].append(span)
    found: dict[Cause, list[Stretch]] = {}
    left: Sequence[Stretch] = stretches
    for cause in Cause:
        if cause in own or cause is Cause.PYTHON:
            rest = [] if cause is Cause.PYTHON else without(left, merged(own[cause]))
            found[cause], left = without(left, rest), rest
    return {cause: parts for cause, parts in found.items() if _length_s(parts) > 0}


def without(stretches: Sequence[Stretch], taken: Sequence[Stretch]) -> list[Stretch]:
    """What of the first is in none of the second, both disjoint and sorted: one walk along both."""
    left: list[Stretch] = []
    place = 0
    for start_s, end_s in stretches:
        free_s = start_s
        while place < len(taken) and taken[place][0] < end_s:
            low_s, high_s = taken[place]
            if low_s > free_s:
                left.append((free_s, low_s))
            free_s = max(free_s, high_s)
            if high_s > end_s:
                break  # it reaches into what comes next
            place += 1
        if free_s < end_s:
            left.append((free_s, end_s))
    return left


def _cause(span: Span) -> Cause:
    """Annotations of other kinds cover Python, and so say nothing."""
    if span.kind is SpanKind.PROFILER:
        return Cause.PROFILER
    return _telling(span.name) or (Cause.PYTHON if span.kind is SpanKind.ANNOTATION else Cause.DISPATCH)


@lru_cache(maxsize=1 << 12)
def _telling(name: str) -> Cause | None:
    return next((cause for cause, pattern in _NAMES.items() if pattern.search(name)), None)


def _length_s(stretches: Iterable[Stretch]) -> float:
    return sum(end_s - start_s for start_s, end_s in stretches)
