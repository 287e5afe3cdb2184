"""From timelines and the counted program to the kernels of an Exam. No torch here."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from statistics import median

from gobrrr.timing.join import matched_ops, own_time, owners
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.timing.timeline import Span, SpanKind, Timeline, op_forest
from gobrrr.work.lineage import Dispatched
from gobrrr.work.op import Op, OpClass

MOSTLY_FOUND = 0.9
"""Of the launching ops: an op that is not found is one in a hundred, where autograd uses another name."""


def device_kernels(ran: Dispatched, linked: Timeline, timed: Timeline, steps: int) -> tuple[Kernel, ...]:
    """Kernels of one step: what they are from a recording with ops, how long they took from one without.

    Both recorded the same steps, so the kernels come in the same order. A CUDA graph may add some or leave some out:
    then they are matched by name and order, and what is left over is not linked.
    """
    owner = launch_owners(linked, owners(matched_ops(ran.ops, op_forest(linked.ops))))
    number, left = divmod(len(timed.device), steps)
    recording = linked if left or not number else timed
    spans = linked.device if recording is linked else timed.device[number * (steps // 2) : number * (steps // 2 + 1)]
    launches: dict[int | None, float] = {
        call.correlation: call.end_s for call in recording.runtime if call.correlation is not None
    }
    began_s = min((launches.get(span.correlation, span.start_s) for span in spans), default=0.0)
    indices = [None if twin is None else owner.get(twin.correlation) for twin in _twins(spans, linked.device)]
    return tuple(
        _kernel(
            ran,
            index,
            span,
            start_s=span.start_s - began_s,
            launched_s=launches[span.correlation] - began_s if span.correlation in launches else None,
        )
        for index, span in zip(indices, spans, strict=True)
    )


def _twins(spans: Sequence[Span], others: Sequence[Span]) -> Iterator[Span | None]:
    """Of each span the one in the other recording that is the same kernel: same name, same order."""
    names, other_names = [span.name for span in spans], [span.name for span in others]
    if names == other_names:
        yield from others
        return
    found: dict[int, Span] = {}
    for block in SequenceMatcher(None, names, other_names, autojunk=False).get_matching_blocks():
        found.update({block.a + place: others[block.b + place] for place in range(block.size)})
    yield from (found.get(place) for place in range(len(spans)))


def launch_owners(linked: Timeline, owner: Mapping[int, int]) -> dict[int | None, int]:
    """Correlation to program index, by way of the runtime call that launched and the op it was called in."""
    return {
        call.correlation: owner[call.op]
        for call in linked.runtime
        if call.correlation is not None and call.op is not None and call.op in owner
    }


def _kernel(ran: Dispatched, index: int | None, span: Span, *, start_s: float, launched_s: float | None) -> Kernel:
    return Kernel(
        name=span.name,
        start_s=start_s,
        seconds=span.seconds,
        kind=_kind(span, None if index is None else ran.ops[index]),
        stream=span.lane,
        launched_s=launched_s,
        fused_from=None if index is None else ran.fused_from[index],
        op=index,
    )


def _kind(span: Span, op: Op | None) -> KernelKind:
    if op is not None and op.cls is OpClass.COMMUNICATION:
        return KernelKind.COMMUNICATION
    across = span.kind is SpanKind.TRANSFER and "DtoD" not in span.name
    return KernelKind.TRANSFER if across else KernelKind.COMPUTE


def host_kernels(
    ran: Dispatched, recordings: Sequence[Timeline], step_s: float, dispatch_s: float, profiler_op_s: float
) -> tuple[Kernel, ...]:
    """On a CPU an op's own time, less what dispatching and profiling its calls cost; the median of the recordings.

    A profiler only ever slows a step. One that was recorded in less than T ran while the machine had fewer other
    things to do than when T was taken, and is stretched to it: else the difference would pass for the host's. Where
    many ops were not found, as of a compiler's calls that nobody sees, the rest of the step is theirs: unlinked.
    """
    seconds: dict[int, list[float]] = defaultdict(list)
    starts: dict[int, float] = {}
    for recording in recordings:
        stretch = max(1.0, step_s / recording.wall_s) if recording.wall_s else 1.0
        matched = matched_ops(ran.ops, op_forest(recording.ops))
        spans = frozenset(node.span for node in matched.values())
        for index, node in matched.items():
            seconds[index].append(stretch * own_time(node, spans, dispatch_s + profiler_op_s))
            starts.setdefault(index, node.span.start_s)
    kernels = tuple(
        _kernel(
            ran,
            index,
            Span(SpanKind.KERNEL, ran.ops[index].name, 0, starts[index], median(values)),
            start_s=starts[index],
            launched_s=None,
        )
        for index, values in sorted(seconds.items())
    )
    launching = sum(op.launches for op in ran.ops)
    if len(seconds) >= MOSTLY_FOUND * launching:
        return kernels
    rest_s = max(0.0, step_s - sum(kernel.seconds for kernel in kernels))
    return (
        *kernels,
        _kernel(ran, None, Span(SpanKind.KERNEL, "not seen", 0, 0.0, rest_s), start_s=0.0, launched_s=None),
    )
