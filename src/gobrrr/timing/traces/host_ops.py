"""What ran in a step without a device: the host's own ops, each at the level where its work is known.

An op calls others. The outermost whose recorded shapes tell its work stands for all that it calls; where none does, the
outermost of all. What callers take beside those, and ops that move nothing, as views, are the host's overhead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import NONE, Trace
from gobrrr.timing.traces.ownership import Host, Lane, chain, host_of, lanes, module_of, phase_of
from gobrrr.work.kernel_names import is_communication
from gobrrr.work.op import CountedBy, Op
from gobrrr.work.recorded import recorded
from gobrrr.work.recorded_ops import CountedOp, Surroundings, counted_op, unknown_op
from gobrrr.work.work import Work


def host_ops(trace: Trace, spans: Sequence[Span]) -> list[tuple[Span, Op]]:
    """Of all threads, by start."""
    host, count = host_of(trace, spans), Counting(trace)
    ops = [span for span in spans if span.kind is SpanKind.OP or _communicates(span)]
    found = [one for lane in lanes(ops).values() for one in _standing(lane, count)]
    found.sort(key=lambda one: one[0].start_s)
    return [(span, _op(trace, host, span, counted)) for span, counted in found]


def _communicates(span: Span) -> bool:
    return span.kind is SpanKind.ANNOTATION and is_communication(span.name)


@dataclass(slots=True)
class Counting:
    """Calls that look alike are counted once."""

    trace: Trace
    counted: dict[tuple[str, int], CountedOp | None] = field(default_factory=dict)

    def of(self, span: Span, *, calls_others: bool) -> CountedOp | None:
        """None where nobody knows; of what calls others only a formula knows it."""
        if is_communication(span.name):
            return unknown_op(span.name)
        key = span.name, self.trace.columns.details[span.row or 0]
        if key not in self.counted:
            self.counted[key] = self._count(*key)
        found = self.counted[key]
        return None if found is not None and calls_others and found.counted_by is not CountedBy.FORMULA else found

    def _count(self, name: str, details: int) -> CountedOp | None:
        if details == NONE:
            return None
        shown = self.trace.details[details]
        op = recorded(name, shown.dims, shown.strides, shown.types, shown.values, assumed_type=None)
        return None if op is None else counted_op(op, Surroundings())


def _standing(lane: Lane, count: Counting) -> Iterator[tuple[Span, CountedOp]]:
    parents = lane.parents
    callers = set(parents)
    known: dict[int, CountedOp] = {}
    covered: list[bool] = []
    for place, parent in enumerate(parents):
        inside = parent != NONE and covered[parent]
        found = None if inside else count.of(lane.spans[place], calls_others=place in callers)
        covered.append(inside or found is not None)
        if found is not None:
            known[place] = found
    opened = {NONE}
    for place in known:
        above = parents[place]
        while above not in opened:
            opened.add(above)
            above = parents[above]
    for place, parent in enumerate(parents):
        if not covered[place] and place not in opened and parent in opened:
            known[place] = unknown_op(lane.spans[place].name)
    return ((lane.spans[place], counted) for place, counted in known.items() if counted.work != Work())


def _op(trace: Trace, host: Host, span: Span, counted: CountedOp) -> Op:
    around = chain(host, span)
    return Op(
        name=span.name,
        cls=counted.cls,
        phase=phase_of(host, around, span),
        module=module_of(trace, host, around, span),
        source=None,
        device="cpu",
        inputs=counted.inputs,
        outputs=counted.outputs,
        counted_by=counted.counted_by,
        work=counted.work,
        launches=True,
    )
