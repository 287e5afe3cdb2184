"""From timelines and the counted program to the kernels of an Exam. No torch here."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median

from gobrrr.timing.join import matched_ops, own_time, owners
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.timing.timeline import Span, SpanKind, Timeline, op_forest
from gobrrr.work.op import CountedBy, Op, OpClass


def device_kernels(program: Sequence[Op], linked: Timeline, timed: Timeline, steps: int) -> tuple[Kernel, ...]:
    """Kernels of one step: what they are from a recording with ops, how long they took from one without.

    Both recorded the same steps, so the kernels come in the same order; where they do not, the first one's times stand.
    """
    owner = launch_owners(linked, owners(matched_ops(program, op_forest(linked.ops))))
    spans = _middle_step(linked, timed, steps)
    calls = linked.runtime if spans is linked.device else timed.runtime
    launches: dict[int | None, float] = {call.correlation: call.end_s for call in calls if call.correlation is not None}
    began_s = min((launches.get(span.correlation, span.start_s) for span in spans), default=0.0)
    shares = _shares([owner.get(original.correlation) for original in linked.device], spans)
    return tuple(
        _kernel(
            program,
            owner.get(original.correlation),
            share,
            span,
            start_s=span.start_s - began_s,
            launched_s=launches[span.correlation] - began_s if span.correlation in launches else None,
        )
        for original, span, share in zip(linked.device, spans, shares, strict=True)
    )


def launch_owners(linked: Timeline, owner: Mapping[int, int]) -> dict[int | None, int]:
    """Correlation to program index, by way of the runtime call that launched and the op it was called in."""
    return {
        call.correlation: owner[call.op]
        for call in linked.runtime
        if call.correlation is not None and call.op is not None and call.op in owner
    }


def _middle_step(linked: Timeline, timed: Timeline, steps: int) -> Sequence[Span]:
    number = len(linked.device)
    names = [span.name for span in linked.device]
    middle = timed.device[number * (steps // 2) : number * (steps // 2 + 1)]
    same = len(timed.device) == steps * number and [span.name for span in middle] == names
    return middle if same else linked.device


def _shares(owners_of: Sequence[int | None], spans: Sequence[Span]) -> list[float]:
    """Of its op's time, for each kernel: an op done by several kernels has its work split among them by time."""
    whole: dict[int | None, float] = defaultdict(float)
    for index, span in zip(owners_of, spans, strict=True):
        whole[index] += span.seconds
    return [span.seconds / whole[index] if whole[index] else 1.0 for index, span in zip(owners_of, spans, strict=True)]


def _kernel(
    program: Sequence[Op], index: int | None, share: float, span: Span, *, start_s: float, launched_s: float | None
) -> Kernel:
    op = None if index is None else program[index]
    return Kernel(
        name=span.name,
        start_s=start_s,
        seconds=span.seconds,
        kind=_kind(span, op),
        stream=span.lane,
        launched_s=launched_s,
        fused_from=None if index is None else (index,),
        cls=OpClass.OTHER if op is None else op.cls,
        phase="other" if op is None else op.phase.value,
        module="" if op is None else op.module,
        source=None if op is None else op.source,
        inputs=() if op is None else op.inputs,
        outputs=() if op is None else op.outputs,
        work=None if op is None or op.work is None else op.work.scaled(share),
        counted_by=CountedBy.UNKNOWN if op is None else op.counted_by,
    )


def _kind(span: Span, op: Op | None) -> KernelKind:
    if op is not None and op.cls is OpClass.COMMUNICATION:
        return KernelKind.COMMUNICATION
    across = span.kind is SpanKind.TRANSFER and "DtoD" not in span.name
    return KernelKind.TRANSFER if across else KernelKind.COMPUTE


def host_kernels(
    program: Sequence[Op], recordings: Sequence[Timeline], step_s: float, dispatch_s: float, profiler_op_s: float
) -> tuple[Kernel, ...]:
    """On a CPU an op's own time, less what dispatching and profiling its calls cost; the median of the recordings.

    A profiler only ever slows a step. One that was recorded in less than T ran while the machine had fewer other
    things to do than when T was taken, and is stretched to it: else the difference would pass for the host's.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, float] = {}
    for recording in recordings:
        stretch = max(1.0, step_s / recording.wall_s) if recording.wall_s else 1.0
        matched = matched_ops(program, op_forest(recording.ops))
        spans = frozenset(node.span for node in matched.values())
        for index, node in matched.items():
            seconds[index].append(stretch * own_time(node, spans, dispatch_s + profiler_op_s))
            starts.setdefault(index, node.span.start_s)
    return tuple(
        _kernel(
            program,
            index,
            1.0,
            Span(SpanKind.KERNEL, program[index].name, 0, starts[index], median(values)),
            start_s=starts[index],
            launched_s=None,
        )
        for index, values in sorted(seconds.items())
    )
