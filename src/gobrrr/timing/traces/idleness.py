"""Why the device was idle in a step of a trace: the causes of a live recording, found in the same spans."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobrrr.timing.idle import Cause, Gap, Stretch, by_cause, gaps
from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import Trace
from gobrrr.timing.traces.links import Step
from gobrrr.timing.traces.spans import arranged, spans_of


@dataclass(frozen=True, slots=True)
class Idleness:
    shares: Mapping[str, float]
    """Of the idle time of a step, by cause."""
    before: Mapping[int, str]
    """By the row of what ran next, the cause of most of the gap before it."""


def idleness(trace: Trace, step: Step, host: Sequence[Span]) -> Idleness:
    """From what the host did in the step's stretch.

    Before a kernel was asked for the device waited for the host, afterwards for nobody: its own latency, and all
    there is where the host was always in time. What it still did for the step before is no idle time.
    """
    recording = arranged([*host, *spans_of(trace, _overlapping(trace, step), step.start_us)])
    found = gaps(recording.device, recording, (0.0, (step.end_us - step.start_us) * 1e-6))
    spans = (*recording.ops, *recording.runtime, *recording.annotations, *_profiler(trace, step))
    causes = by_cause([(gap.start_s, gap.asked_s) for gap in found], spans)
    causes[Cause.LAUNCH_LATENCY] = [(gap.asked_s, gap.end_s) for gap in found]
    seconds = {cause: sum(end_s - start_s for start_s, end_s in parts) for cause, parts in causes.items()}
    whole_s = sum(seconds.values())
    shares = {cause.value: part / whole_s for cause, part in seconds.items()} if whole_s else {}
    return Idleness(shares or {Cause.LAUNCH_LATENCY.value: 1.0}, _before(found, causes))


def _before(found: Sequence[Gap], causes: Mapping[Cause, Sequence[Stretch]]) -> dict[int, str]:
    starts = [gap.start_s for gap in found]
    seconds: list[defaultdict[str, float]] = [defaultdict(float) for _ in found]
    for cause, parts in causes.items():
        for start_s, end_s in parts:
            seconds[bisect_right(starts, start_s) - 1][cause.value] += end_s - start_s
    return {
        gap.row: max(own, key=own.__getitem__)
        for gap, own in zip(found, seconds, strict=True)
        if gap.row is not None and own
    }


def _profiler(trace: Trace, step: Step) -> list[Span]:
    """What the profiler itself did meanwhile; it writes this down for no thread in particular."""
    spans = spans_of(trace, trace.rows(SpanKind.PROFILER), step.start_us)
    return [span for span in spans if span.end_s > 0 and span.start_s < (step.end_us - step.start_us) * 1e-6]


def _overlapping(trace: Trace, step: Step) -> list[int]:
    """Everything that ran on the step's device while its host was at it."""
    lane, start_us, us = trace.columns.lane, trace.columns.start_us, trace.columns.us
    devices = {trace.lanes[lane[row]][0] for row, _ in step.device}
    return [
        row
        for row in trace.rows(SpanKind.KERNEL, SpanKind.TRANSFER)
        if start_us[row] < step.end_us
        and start_us[row] + us[row] > step.start_us
        and trace.lanes[lane[row]][0] in devices
    ]
