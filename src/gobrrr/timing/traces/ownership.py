"""Whose kernels they are: of each kernel of a step the ops around its launch, and where those ran in the model."""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import NONE, Trace
from gobrrr.work.op import Phase

_MODULE = "nn.Module: "
_BACKWARD = "autograd::engine::evaluate_function"
_OPTIMIZER = "Optimizer.step"


@dataclass(frozen=True, slots=True)
class Lane:
    """Spans of one thread, by start and then the longest first, each with the place of the one around it."""

    spans: Sequence[Span]
    starts: Sequence[float]
    ends: Sequence[float]
    parents: Sequence[int]

    def around(self, moment_s: float) -> list[Span]:
        """Those that hold this moment, the innermost first: what holds it holds the start of the last before it."""
        found: list[Span] = []
        place = bisect_right(self.starts, moment_s) - 1
        while place >= 0:
            if self.ends[place] >= moment_s:
                found.append(self.spans[place])
            place = self.parents[place]
        return found

    def following(self, span: Span, number: int) -> Sequence[Span]:
        """The next ones that begin when this one has ended."""
        place = bisect_right(self.starts, span.end_s)
        return self.spans[place : place + number]


@dataclass(frozen=True, slots=True)
class Host:
    """What the threads of the host did in a step."""

    ops: Mapping[int, Lane]
    python: Lane
    annotations: Lane
    forward: Mapping[int, Span]
    """The first op with each sequence number, to find what a backward op belongs to."""


def lanes(spans: Sequence[Span]) -> dict[int, Lane]:
    by_lane: defaultdict[int, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.start_s, -span.seconds)):
        by_lane[span.lane].append(span)
    return {number: _lane(own) for number, own in by_lane.items()}


def _lane(spans: Sequence[Span]) -> Lane:
    starts, ends = [span.start_s for span in spans], [span.end_s for span in spans]
    parents: list[int] = []
    opened: list[int] = []
    for place, start_s in enumerate(starts):
        while opened and ends[opened[-1]] <= start_s:
            opened.pop()
        parents.append(opened[-1] if opened else NONE)
        opened.append(place)
    return Lane(spans, starts, ends, parents)


def host_of(trace: Trace, spans: Sequence[Span]) -> Host:
    """From what it did in the step's stretch."""
    ops = [span for span in spans if span.kind is SpanKind.OP]
    python = [span for span in spans if span.kind is SpanKind.PYTHON]
    modules = sorted((span for span in python if span.name.startswith(_MODULE)), key=lambda span: span.start_s)
    forward: dict[int, Span] = {}
    for span in ops:
        number = trace.columns.sequence[span.row or 0]
        if number != NONE and not span.name.startswith(_BACKWARD):
            forward.setdefault(number, span)
    notes = sorted((span for span in spans if span.kind is SpanKind.ANNOTATION), key=lambda span: span.start_s)
    return Host(lanes(ops), _lane(modules), _lane(notes), forward)


def chain(host: Host, call: Span) -> list[Span]:
    """The ops around a call, the innermost first; by time, for numbers of ops and calls are confused in old traces."""
    lane = host.ops.get(call.lane)
    return [] if lane is None else lane.around(call.start_s + call.seconds / 2)


def phase_of(host: Host, ops: Sequence[Span], call: Span | None) -> Phase:
    if any(_is_backward(op.name) for op in ops):
        return Phase.BACKWARD
    if call is None:
        return Phase.OTHER
    if any(_OPTIMIZER in span.name for span in host.annotations.around(call.start_s)):
        return Phase.OPTIMIZER
    return Phase.FORWARD if ops else Phase.OTHER


@lru_cache(maxsize=1 << 12)
def _is_backward(name: str) -> bool:
    return name.startswith(_BACKWARD) or name.endswith(("Backward", "Backward0", "Backward1"))


def module_of(trace: Trace, host: Host, ops: Sequence[Span], call: Span | None) -> str:
    """The modules that Python was in, the outermost first; of a backward op, those of its forward op."""
    for op in ops:
        if op.name.startswith(_BACKWARD) and (number := trace.columns.sequence[op.row or 0]) in host.forward:
            return _path(host, host.forward[number].start_s)
    return "" if call is None else _path(host, call.start_s)


def _path(host: Host, moment_s: float) -> str:
    names = [span.name.removeprefix(_MODULE) for span in host.python.around(moment_s)]
    return ".".join(reversed(names))
