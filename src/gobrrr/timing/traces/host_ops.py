"""What ran in a step without a device: the host's own ops, each at the level where its work is known.

An op calls others. The outermost whose recorded shapes tell its work stands for all that it calls; else the outermost
that does more than to call others. What callers take beside those, and ops that move nothing, as views, are overhead.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import NONE, Trace
from gobrrr.timing.traces.ownership import Host, Lane, chain, host_of, lanes, module_of, phase_of
from gobrrr.work.kernel_names import is_communication
from gobrrr.work.op import CountedBy, Op, OpClass
from gobrrr.work.recorded import recorded
from gobrrr.work.recorded_ops import CountedOp, Surroundings, counted_op, moves_nothing, only_calls, unknown_op
from gobrrr.work.work import Work

NOTHING = CountedOp(OpClass.OTHER, CountedBy.FORMULA, Work(), (), ())


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
        if moves_nothing(name):
            return NOTHING
        if details == NONE:
            return None
        shown = self.trace.details[details]
        op = recorded(name, shown.dims, shown.strides, shown.types, shown.values, assumed_type=None)
        return None if op is None else counted_op(op, Surroundings())


def _standing(lane: Lane, count: Counting) -> Iterator[tuple[Span, CountedOp]]:
    callers = set(lane.parents)
    settled: list[bool] = []
    for place, (span, parent) in enumerate(zip(lane.spans, lane.parents, strict=True)):
        inside = parent != NONE and settled[parent]
        found = None if inside else count.of(span, calls_others=place in callers)
        if found is None and not inside and not (place in callers and only_calls(span.name)):
            found = unknown_op(span.name)
        settled.append(inside or found is not None)
        if found is not None and found.work != Work():
            yield span, found


def _op(trace: Trace, host: Host, span: Span, counted: CountedOp) -> Op:
    around = chain(host, span)
    return counted.ran(span.name, phase_of(host, around, span), module_of(trace, host, around, span), "cpu")
