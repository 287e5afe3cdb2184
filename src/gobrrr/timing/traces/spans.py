"""Rows of a trace as a Timeline, in seconds.

The profiler's own file is its public face, and a recorded trace is the same file; so a live run goes through it too.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import Any

from gobrrr.timing.timeline import Span, SpanKind, Timeline
from gobrrr.timing.traces.columns import KINDS, NONE, Tables, Trace
from gobrrr.timing.traces.decode import chunk_of_events

_HELD = (SpanKind.OP, SpanKind.RUNTIME, SpanKind.KERNEL, SpanKind.TRANSFER)


def timeline_of_events(events: Iterable[Mapping[str, Any]]) -> Timeline:
    tables = Tables()
    tables.add(chunk_of_events(events))
    return timeline_of(tables.trace())


def timeline_of(trace: Trace) -> Timeline:
    """All of it, counted from the first that is no annotation."""
    columns = trace.columns
    began_us = min((columns.start_us[row] for row in trace.rows(*_HELD)), default=0.0)
    return arranged(spans_of(trace, range(len(columns)), began_us))


def arranged(spans: Iterable[Span]) -> Timeline:
    by_kind: dict[SpanKind, list[Span]] = defaultdict(list)
    for span in sorted(spans, key=lambda span: (span.start_s, -span.seconds)):
        by_kind[span.kind].append(span)
    device = sorted((*by_kind[SpanKind.KERNEL], *by_kind[SpanKind.TRANSFER]), key=lambda span: span.start_s)
    return Timeline(
        tuple(by_kind[SpanKind.OP]),
        tuple(by_kind[SpanKind.RUNTIME]),
        tuple(device),
        tuple(by_kind[SpanKind.ANNOTATION]),
    )


def spans_of(trace: Trace, rows: Iterable[int], began_us: float) -> list[Span]:
    names, lanes, details, columns = trace.names, trace.lanes, trace.details, trace.columns
    kind, name, lane, detail = columns.kind, columns.name, columns.lane, columns.details
    start_us, us, correlation, op = columns.start_us, columns.us, columns.correlation, columns.external
    return [
        Span(
            KINDS[kind[row]],
            names[name[row]],
            lane_number(lanes[place := lane[row]][1], place),
            (start_us[row] - began_us) * 1e-6,
            us[row] * 1e-6,
            None if (number := correlation[row]) == NONE else number,
            None if (number := op[row]) == NONE else number,
            None if (number := detail[row]) == NONE else _first_shape(details[number].dims),
            row,
        )
        for row in rows
    ]


@lru_cache(maxsize=1 << 10)
def lane_number(part: str, place: int) -> int:
    """The stream of a device, the thread of a host; where that is no number, the lane's place."""
    number = part.removeprefix("stream ")
    return int(number) if number.isdigit() else place


@lru_cache(maxsize=1 << 14)
def _first_shape(dims: bytes) -> tuple[int, ...] | None:
    """Sizes of the first argument that has any."""
    try:
        found = json.loads(dims) if dims else None
    except (ValueError, RecursionError):
        return None
    return _sizes(found) if isinstance(found, list) else None


def _sizes(dims: Sequence[Any]) -> tuple[int, ...] | None:
    """A list of tensors is a list of sizes, and what is no list has none."""
    for sizes in dims:
        if isinstance(sizes, list) and sizes:
            return tuple(sizes) if isinstance(sizes[0], int) else _sizes(sizes)
    return None
