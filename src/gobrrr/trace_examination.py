"""From somebody's recorded trace to an Exam. Nothing is run: what was not recorded is unknown, and is said to be."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median

from gobrrr import schema, trace_cache, units
from gobrrr.errors import BadInput
from gobrrr.exam import Exam, Quality
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.elsewhere import ceilings_of
from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.kernel import Kernel, KernelKind, Sync
from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import KINDS, NUMBER, Trace
from gobrrr.timing.traces.host_ops import host_ops
from gobrrr.timing.traces.idleness import idleness
from gobrrr.timing.traces.inflate import Text
from gobrrr.timing.traces.joining import Joined, Joining
from gobrrr.timing.traces.links import Step, Steps, find_steps, is_graph, launched
from gobrrr.timing.traces.reading import read_trace
from gobrrr.timing.traces.replay import (
    LEAST_COST,
    MOST_COST,
    USUAL_COST,
    WAITING,
    Cost,
    Played,
    play,
    requests_of,
    slowness,
)
from gobrrr.timing.traces.source import Source
from gobrrr.timing.traces.spans import spans_of
from gobrrr.work.kernel_names import is_communication
from gobrrr.work.recorded_ops import has_torch

Progress = Callable[[int, int, str], None]

MOST_STEPS = 3
"""Of the recorded steps, spread over all of them, that are played again."""

GRAPH_DOUBT = 0.15
"""A graph that is recorded kernel by kernel runs otherwise than one that is not: seen to differ by 10 %."""

DOUBT = 0.02
"""Of a step that the device fills: its clocks."""

MOST_HOST_OPS = 50_000
"""Of one step without a device: no model has more, but a recording of hours without marks between steps may."""

_NO_COST = Cost(0.0, 0.0, 0.0)
_HOST_KINDS = frozenset(NUMBER[kind] for kind in (SpanKind.OP, SpanKind.RUNTIME, SpanKind.PYTHON, SpanKind.ANNOTATION))


def examine_trace(
    source: Source,
    *,
    ceilings: Path | None = None,
    processes: int | None = None,
    progress: Progress = lambda _number, _total, _what: None,
) -> Exam:
    """The Exam of a trace, kept from the last time or made now, with the ceilings that hold now."""
    exam = trace_cache.load(source)
    if exam is None:
        exam = _examined(source, processes, progress)
        trace_cache.store(source, exam)
    limits, origin = ceilings_of(exam.ceilings.device, ceilings)
    if (limits, origin) == (exam.ceilings, exam.ceilings_from):
        return exam
    return replace(exam, ceilings=limits, ceilings_from=origin)


def _examined(source: Source, processes: int | None, progress: Progress) -> Exam:
    """Reads it, finds its steps, joins what ran with what asked for it, and counts the work from recorded shapes."""
    with without_garbage_collection():
        progress(1, 2, "reading the trace")
        found = _found(read_trace(source, processes=processes))
        progress(2, 2, "counting its work")
        ceilings, origin = ceilings_of(_device_name(found.trace, found.device))
        return (_device_exam if found.ran else _host_exam)(source, found, ceilings, origin)


def exam_or_trace(source: Source) -> Exam:
    """The kept Exam in this file, or that of the trace in it: an Exam begins with the version of its schema."""
    try:
        begun = next(iter(Text(source)), b"")
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror or error}") from None
    if isinstance(source, Path) and b'"schema_version"' in begun[:200]:
        return schema.read(Exam, source)
    return examine_trace(source)


def _found(trace: Trace) -> "Findings":
    """What ran on the busiest device, by steps; where nothing did, the host's ops ask for themselves."""
    ran, devices, notes = launched(trace), _devices(trace), list(trace.lost)
    if trace.strange:
        notes.append(f"rows of kinds that are not known are left out: {_categories(trace)}")
    device = devices[0] if devices else None
    if len(devices) > 1:
        device = max(devices, key=_device_us(trace).__getitem__)
        ran = [(row, call) for row, call in ran if _device(trace, row) == device]
        notes.append(f"it holds {len(devices)} devices; this is device {device}")
    asked = ran or [(row, row) for row in _outermost(trace, trace.rows(SpanKind.OP))]
    return Findings(trace, device, find_steps(trace, asked), len(ran), notes)


def _categories(trace: Trace) -> str:
    return ", ".join(category or "(none)" for category in trace.strange)


@dataclass(frozen=True, slots=True)
class Findings:
    """A trace with what was found in it on the way."""

    trace: Trace
    device: str | None
    steps: Steps
    ran: int
    """How many kernels and transfers."""
    notes: list[str]


def _device_exam(source: Source, found: Findings, ceilings: Ceilings, origin: str) -> Exam:
    trace, steps = found.trace, found.steps
    slow = slowness(trace)
    played = [_played(trace, step, slow) for step in _spread([step for step in steps.steps if step.device])]
    if not any(one.play.step_s > 0 for one in played):
        raise BadInput(f"{source} is a trace in which no step has kernels that take time")
    chosen = sorted(played, key=lambda one: one.play.step_s)[len(played) // 2]
    host = spans_of(trace, chosen.rows, chosen.step.start_us)
    idle = idleness(trace, chosen.step, host)
    joined = Joining(trace, chosen, host, idle.before).joined()
    graphs = _graph_share(trace, chosen.step)
    low, high = _bounds(played, graphs, slow)
    return Exam(
        target=source.name,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device="cuda",
        serial=False,
        ceilings=ceilings,
        ceilings_from=origin,
        window_step_s=tuple(one.play.step_s for one in played),
        step_interval_s=(low, high),
        steps=len(steps.steps),
        step_s_method="replayed",
        step_profiled_s=play(chosen.requests, _NO_COST).step_s,
        host_s=_host_s(chosen, median(one.play.step_s for one in played)),
        kernels=joined.kernels,
        program=None,
        dispatched=joined.ops,
        syncs=tuple(_syncs(trace, chosen)),
        peak_memory_bytes=trace.peak_bytes,
        gpu_util_percent=None,
        quality=_quality(found, chosen, joined, graphs),
        idle=idle.shares,
    )


def _host_s(chosen: Played, step_s: float) -> float | None:
    """Unknown where the file holds no call that asked for anything: the host was not recorded, or not as we know it."""
    return min(chosen.play.host_s, step_s) if any(request.pieces for request in chosen.requests) else None


def _spread(steps: Sequence[Step]) -> Sequence[Step]:
    """A few of all; the first one has often just begun to be recorded, so it is left out where there are enough."""
    rest = steps[1:] if len(steps) > MOST_STEPS else steps
    every = max(1, len(rest) // MOST_STEPS)
    return rest[::every][:MOST_STEPS]


def _played(trace: Trace, step: Step, slow: float) -> Played:
    rows = _host_rows(trace, step)
    requests = requests_of(trace, step, rows)
    return Played(step, rows, requests, play(requests, USUAL_COST.times(slow)))


def _bounds(played: Sequence[Played], graphs: float, slow: float) -> tuple[float, float]:
    """From the most that recording can cost to the least."""
    ordered = sorted(played, key=lambda one: one.play.step_s)
    least = play(ordered[0].requests, MOST_COST.times(slow)).step_s
    most = play(ordered[-1].requests, LEAST_COST.times(slow)).step_s
    doubt = max(DOUBT, GRAPH_DOUBT * graphs)
    return least * (1 - doubt), most * (1 + doubt)


def _syncs(trace: Trace, chosen: Played) -> Iterable[Sync]:
    columns, waits = trace.columns, trace.names_with(*WAITING)
    for row in chosen.rows:
        if columns.name[row] in waits and KINDS[columns.kind[row]] is SpanKind.RUNTIME:
            yield Sync(trace.name_of(row), columns.us[row] * 1e-6, None)


def _host_exam(source: Source, found: Findings, ceilings: Ceilings, origin: str) -> Exam:
    """Of a trace in which nothing ran on a device: the host's ops are what ran."""
    trace, steps = found.trace, _unhurried(found.steps.steps)
    step = steps[(len(steps) - 1) // 2]
    if step.end_us <= step.start_us:
        kinds = f"; its spans have other categories: {_categories(trace)}" if trace.strange else ""
        raise BadInput(f"{source} is a trace in which nothing that torch's profiler writes takes time{kinds}")
    ran = host_ops(trace, spans_of(trace, _host_rows(trace, step), step.start_us))
    left_out = len(ran) - MOST_HOST_OPS
    if left_out > 0:
        ran = sorted(ran, key=lambda one: one[0].seconds, reverse=True)[:MOST_HOST_OPS]
        found.notes.append(f"the {left_out} shortest of its ops are left out, and count as overhead")
    kernels = tuple(_host_kernel(span, step, place) for place, (span, _) in enumerate(ran))
    return Exam(
        target=source.name,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device="cpu",
        serial=len({span.lane for span, _ in ran}) == 1,  # several threads run side by side
        ceilings=ceilings,
        ceilings_from=origin,
        window_step_s=tuple((one.end_us - one.start_us) * 1e-6 for one in steps),
        steps=len(steps),
        step_s_method="profiled",
        step_profiled_s=(step.end_us - step.start_us) * 1e-6,
        host_s=None,
        kernels=kernels,
        program=None,
        dispatched=tuple(op for _, op in ran),
        syncs=None,
        peak_memory_bytes=trace.peak_bytes,
        gpu_util_percent=None,
        gap_before_s=min((one.start_s for one in kernels), default=None),
        quality=Quality(
            linked_share=None,
            steady=True,
            growing=False,
            warnings=(*found.notes, *_without_steps(found.steps), _without_device(trace)),
        ),
    )


def _unhurried(steps: Sequence[Step]) -> Sequence[Step]:
    """The shortest first. The first of several has often just begun to be recorded, and is left out."""
    rest = steps[1:] if len(steps) > MOST_STEPS else steps
    return sorted(rest, key=lambda step: step.end_us - step.start_us)


def _without_device(trace: Trace) -> str:
    """A recording without the device's activity looks as if there was none, but for the names of those there are."""
    names = ", ".join(sorted({name for _, name in _listed(trace)}))
    also = f"; if the step uses the {names} that it names, record ProfilerActivity.CUDA too" if names else ""
    return f"nothing ran on a device: these are the host's own ops{also}"


def _outermost(trace: Trace, rows: Sequence[int]) -> list[int]:
    """Of each thread the rows that lie in no other."""
    columns = trace.columns
    until: dict[int, float] = {}
    found: list[int] = []
    for row in sorted(rows, key=lambda row: (columns.start_us[row], -columns.us[row])):
        end_us = columns.start_us[row] + columns.us[row]
        if columns.start_us[row] >= until.get(columns.lane[row], float("-inf")):
            found.append(row)
            until[columns.lane[row]] = end_us
    return found


def _host_rows(trace: Trace, step: Step) -> list[int]:
    kind = trace.columns.kind
    return [row for row in trace.within(step.start_us, step.end_us) if kind[row] in _HOST_KINDS]


def _host_kernel(span: Span, step: Step, place: int) -> Kernel:
    step_s = (step.end_us - step.start_us) * 1e-6
    return Kernel(
        name=span.name,
        start_s=span.start_s,
        seconds=min(span.seconds, step_s - span.start_s),
        kind=KernelKind.COMMUNICATION if is_communication(span.name) else KernelKind.COMPUTE,
        stream=span.lane,
        launched_s=None,
        fused_from=None,
        op=place,
    )


# **** devices ****


def _device(trace: Trace, row: int) -> str:
    return trace.lanes[trace.columns.lane[row]][0]


def _devices(trace: Trace) -> list[str]:
    """On which something ran."""
    rows = trace.rows(SpanKind.KERNEL, SpanKind.TRANSFER)
    lanes = dict.fromkeys(map(trace.columns.lane.__getitem__, rows))
    return list(dict.fromkeys(trace.lanes[place][0] for place in lanes))


def _device_us(trace: Trace) -> dict[str, float]:
    """What each device did, in microseconds."""
    us: defaultdict[str, float] = defaultdict(float)
    for row in trace.rows(SpanKind.KERNEL, SpanKind.TRANSFER):
        us[_device(trace, row)] += trace.columns.us[row]
    return us


def _device_name(trace: Trace, device: str | None) -> str | None:
    """As the file lists it; where it lists several and none has the number, they are all of one kind or unknown."""
    listed = _listed(trace)
    own = [name for number, name in listed if number == device]
    names = {name for _, name in listed}
    if device is None:
        return None
    return own[0] if own else names.pop() if len(names) == 1 else None


def _listed(trace: Trace) -> list[tuple[str, str]]:
    """Number and name of each device that the file lists, whether anything ran there or not."""
    listed = trace.metadata.get("deviceProperties")
    named = [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
    return [(str(one.get("id")), str(one["name"])) for one in named if one.get("name")]


# **** quality ****


def _graph_share(trace: Trace, step: Step) -> float:
    """Of busy time, in kernels that one launch of a graph asked for."""
    columns = trace.columns
    whole_us = sum(columns.us[row] for row, _ in step.device)
    graphs_us = sum(columns.us[row] for row, call in step.device if call is not None and is_graph(trace.name_of(call)))
    return graphs_us / whole_us if whole_us else 0.0


def _quality(found: Findings, chosen: Played, joined: Joined, graphs: float) -> Quality:
    def share(places: Iterable[int]) -> float | None:
        whole_s = sum(kernel.seconds for kernel in joined.kernels)
        return sum(joined.kernels[place].seconds for place in places) / whole_s if whole_s else None

    linked, shaped = share(joined.linked), share(joined.shaped)
    unlinked = share(place for place, (_, call) in enumerate(chosen.step.device) if call is None)
    return Quality(
        linked_share=linked,
        steady=True,
        growing=False,
        shapes_share=shaped,
        graph_share=graphs,
        steps_found_by=found.steps.found_by,
        warnings=tuple(
            _warnings(found, linked=linked or 0.0, shaped=shaped or 0.0, graphs=graphs, unlinked=unlinked or 0.0)
        ),
    )


NOTABLE = 0.02
"""Of busy time, from which on something that is missing is mentioned."""


def _warnings(found: Findings, *, linked: float, shaped: float, graphs: float, unlinked: float) -> Iterable[str]:
    """What could not be used, each with the change to the recording that would help."""

    def of_device(share: float) -> str:
        return f"{units.percent(share, 0)} of the device's time"

    yield from found.notes
    if not has_torch():
        yield "torch is not installed here, so the work of common ops alone was counted: pip install 'gobrrr[torch]'"
    yield from _without_steps(found.steps)
    if unlinked > NOTABLE:
        yield f"{of_device(unlinked)} was asked for by calls that are not in the file"
    if graphs > NOTABLE:
        yield f"{of_device(graphs)} ran in graphs, which say nothing of ops: their work is not counted"
    if linked - shaped > NOTABLE:
        yield f"{of_device(linked - shaped)} has ops without shapes: record with record_shapes=True"
    rest = 1 - linked - graphs - unlinked
    if rest > NOTABLE and found.trace.rows(SpanKind.OP):
        yield f"{of_device(rest)} was asked for outside of all ops, so its work is not known"
    elif rest > NOTABLE:
        yield f"{of_device(rest)} has no op: record ProfilerActivity.CPU too"


def _without_steps(steps: Steps) -> Iterable[str]:
    if steps.found_by == "whole" and len(steps.steps) == 1:
        yield "no steps were found, so all of it counts as one: call profiler.step() after each step"
