"""Why the device was idle in a step of a trace: the causes of a live recording, found in the same spans."""

from collections.abc import Sequence

from gobrrr.timing.idle import Cause, gaps, named
from gobrrr.timing.timeline import Span, SpanKind, Timeline
from gobrrr.timing.traces.columns import Trace
from gobrrr.timing.traces.links import Step
from gobrrr.timing.traces.spans import timeline_of


def idle_shares(trace: Trace, step: Step, rows: Sequence[int]) -> dict[str, float]:
    """Of the idle time of a step, by cause, from the rows of the host in its stretch.

    Before a kernel was asked for the device waited for the host, afterwards for nobody: its own latency, and all
    there is where the host was always in time. What it still did for the step before is no idle time.
    """
    recording = timeline_of(trace, [*rows, *_overlapping(trace, step)], step.start_us)
    found = gaps(recording.device, recording, (0.0, (step.end_us - step.start_us) * 1e-6))
    waiting = named([(gap.start_s, gap.asked_s) for gap in found], _spans(recording))
    latency_s = sum(gap.end_s - gap.asked_s for gap in found)
    whole_s = sum(waiting.values()) + latency_s
    if not whole_s:
        return {Cause.LAUNCH_LATENCY.value: 1.0}
    return {
        **{cause.value: part / whole_s for cause, part in waiting.items()},
        Cause.LAUNCH_LATENCY.value: latency_s / whole_s,
    }


def _spans(recording: Timeline) -> tuple[Span, ...]:
    return (*recording.ops, *recording.runtime, *recording.annotations)


def _overlapping(trace: Trace, step: Step) -> list[int]:
    """Everything that ran on the step's device while its host was at it."""
    columns = trace.columns
    devices = {trace.lanes[columns.lane[one.row]][0] for one in step.device}
    return [
        row
        for row in columns.rows(SpanKind.KERNEL, SpanKind.TRANSFER)
        if columns.start_us[row] < step.end_us
        and columns.start_us[row] + columns.us[row] > step.start_us
        and trace.lanes[columns.lane[row]][0] in devices
    ]
