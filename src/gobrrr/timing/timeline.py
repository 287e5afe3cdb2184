"""A Timeline: the spans of a recorded stretch. No torch here."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, NamedTuple


class SpanKind(StrEnum):
    OP = "op"
    RUNTIME = "runtime"
    KERNEL = "kernel"
    TRANSFER = "transfer"
    ANNOTATION = "annotation"
    """A stretch of the host that Python code gave a name: a data loader, an optimizer, the profiler's own steps."""
    PYTHON = "python"
    """A Python function, where stacks were recorded."""
    PROFILER = "profiler"
    """What the profiler itself took."""
    ASKING = "asking"
    ASKED = "asked"
    """The two ends of an arrow from a call to what it asked for."""


class Span(NamedTuple):
    """Something that held a lane for a while."""

    kind: SpanKind
    name: str
    lane: int
    """The thread of a host span, the stream of a device span."""
    start_s: float
    seconds: float
    correlation: int | None = None
    """Joins a runtime call with the device span it asked for."""
    op: int | None = None
    """The profiler's number of the op around it, or its own."""
    shape: tuple[int, ...] | None = None
    """Of an op's first tensor that has one, where shapes were recorded."""
    row: int | None = None
    """Where it stands in the columns it was read from."""

    @property
    def end_s(self) -> float:
        return self.start_s + self.seconds


@dataclass(frozen=True, slots=True)
class Timeline:
    ops: tuple[Span, ...] = ()
    runtime: tuple[Span, ...] = ()
    device: tuple[Span, ...] = ()
    """Kernels and transfers by start."""
    annotations: tuple[Span, ...] = ()
    wall_s: float | None = None
    """From the first recorded step's beginning to the last one's end, by the host's clock; unknown of a trace."""


def timeline(events: Iterable[Mapping[str, Any]]) -> Timeline:
    """The spans of these chrome-trace events, in seconds from the first."""
    from gobrrr.timing.traces.spans import timeline_of_events  # which makes spans, and so stands on this file

    return timeline_of_events(events)


def asked_for_within(recording: Timeline) -> Timeline:
    """Without device spans whose launch was not recorded: the device runs behind, and they belong to earlier steps."""
    asked = {call.correlation for call in recording.runtime}
    return replace(recording, device=tuple(span for span in recording.device if span.correlation in asked))


@dataclass(frozen=True, slots=True)
class OpNode:
    """An op with the ops that it called."""

    span: Span
    children: tuple["OpNode", ...]

    @property
    def self_s(self) -> float:
        return self.span.seconds - sum(child.span.seconds for child in self.children)


def op_forest(ops: Sequence[Span]) -> list[OpNode]:
    """Ops of each thread as trees by containment, all roots in order of their start."""
    roots: list[OpNode] = []
    for lane in dict.fromkeys(op.lane for op in ops):
        roots += _trees([op for op in ops if op.lane == lane])
    return sorted(roots, key=lambda node: node.span.start_s)


def _trees(ops: Sequence[Span]) -> list[OpNode]:
    """Of one thread's ops, sorted by start and then longest first; what has its middle in another is its child.

    Not its start: neighbours touch, and the rounding of their ends and starts would make one the other's child.
    """
    roots: list[OpNode] = []
    open_spans: list[tuple[Span, list[OpNode]]] = []

    def close() -> None:
        span, children = open_spans.pop()
        node = OpNode(span, tuple(children))
        (open_spans[-1][1] if open_spans else roots).append(node)

    for op in ops:
        while open_spans and open_spans[-1][0].end_s <= op.start_s + op.seconds / 2:
            close()
        open_spans.append((op, []))
    while open_spans:
        close()
    return roots


def overlap_s(start_s: float, end_s: float, merged: Sequence[tuple[float, float]]) -> float:
    """How much of the stretch lies in these disjoint, sorted intervals."""
    first = max(0, bisect_right(merged, (start_s, float("inf"))) - 1)
    shared = 0.0
    for low, high in merged[first:]:
        if low >= end_s:
            break
        shared += max(0.0, min(high, end_s) - max(low, start_s))
    return shared


def merged(spans: Sequence[Span]) -> list[tuple[float, float]]:
    """The union of their stretches as disjoint intervals."""
    result: list[tuple[float, float]] = []
    for span in sorted(spans, key=lambda span: span.start_s):
        if result and span.start_s <= result[-1][1]:
            result[-1] = (result[-1][0], max(result[-1][1], span.end_s))
        else:
            result.append((span.start_s, span.end_s))
    return result
