"""Reading a trace: slabs decoded one after the other, or by several processes where there are cores for them."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, islice
from json import loads
from multiprocessing import get_all_start_methods

from gobrrr.errors import BadInput
from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.columns import NONE, Chunk, Tables, Trace
from gobrrr.timing.traces.decode import chunk_of, chunk_of_events
from gobrrr.timing.traces.inflate import Text
from gobrrr.timing.traces.slabs import Slabs, single_events
from gobrrr.timing.traces.source import Source
from gobrrr.timing.traces.workers import decoded_together

MOST_ROWS = 1 << 26
"""Of the columns: 3.5 GB. Larger traces have been seen nowhere, and a compressed bomb is."""

MOST_PROCESSES = 6
"""That decode: inflating and joining, which one does for all, takes a quarter of their time, so more would wait."""

WORTH_A_POOL = 8
"""Slabs, before processes are started: they cost some milliseconds each."""


class _WrongCut(Exception):
    """A guess where an event ends was wrong, or the file is damaged there."""


@dataclass(frozen=True, slots=True)
class _Way:
    """How a file is read: the quick way, and again by a slower one if that did not do."""

    processes: int
    exact: bool = False
    arrows: bool = False


def read_trace(source: Source, *, processes: int | None = None) -> Trace:
    """The trace in this file; `BadInput` in a sentence if it holds none."""
    try:
        with without_garbage_collection():  # events are in no cycle, and looking for one takes as long as decoding
            trace, way = _cut_right(source, _Way(processes or min(usable_cores(), MOST_PROCESSES)))
            return _read(source, replace(way, arrows=True)) if _lacks_correlation(trace) else trace
    except OSError as error:
        raise BadInput(f"{source} cannot be read: {error.strerror or error}") from None
    except BadInput as error:
        raise BadInput(f"{source} is not a trace that can be read: {error}") from None


def usable_cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _cut_right(source: Source, way: _Way) -> tuple[Trace, _Way]:
    try:
        return _read(source, way), way
    except _WrongCut:
        way = replace(way, exact=True)
        return _read(source, way), way


def _lacks_correlation(trace: Trace) -> bool:
    """Something ran on a device and carries no number that would join it with a call: the arrows are needed."""
    rows = trace.rows(SpanKind.KERNEL, SpanKind.TRANSFER)
    return NONE in map(trace.columns.correlation.__getitem__, rows)


def _read(source: Source, way: _Way) -> Trace:
    slabs = Slabs(Text(source), way.exact)
    tables = Tables()
    for chunk in _exact_chunks(slabs, way) if way.exact else _chunks(slabs, way):
        tables.add(chunk)
        if len(tables.columns) > MOST_ROWS:
            raise BadInput(f"it has more than {MOST_ROWS >> 20} million spans")
    if not tables.events:
        raise BadInput("there is no event in it")
    unread = [f"{tables.lost} of its {tables.events} events could not be read"] if tables.lost else []
    return tables.trace(slabs.metadata, (*slabs.lost, *unread))


def _chunks(slabs: Slabs, way: _Way) -> Iterator[Chunk]:
    """In the order of the file."""
    texts = iter(slabs)
    first = list(islice(texts, WORTH_A_POOL))
    alone = way.processes == 1 or len(first) < WORTH_A_POOL or not _may_fork()
    if alone:
        yield from (_decoded(slab, way) for slab in chain(first, texts))
    else:
        yield from decoded_together(chain(first, texts), partial(_decoded, way=way), way.processes)


def _may_fork() -> bool:
    """A child of a process with other threads may inherit a lock that nobody will open."""
    return "fork" in get_all_start_methods() and threading.active_count() == 1


def _decoded(slab: bytes, way: _Way) -> Chunk:
    try:
        return chunk_of(slab, arrows=way.arrows)
    except (ValueError, RecursionError) as error:
        raise _WrongCut from error


def _exact_chunks(slabs: Slabs, way: _Way) -> Iterator[Chunk]:
    for slab in slabs:
        try:
            yield chunk_of(slab, arrows=way.arrows)
        except (ValueError, RecursionError):
            yield chunk_of_events([_event(text) for text in single_events(slab)], arrows=way.arrows)


def _event(text: bytes) -> object:
    try:
        return loads(text.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return None
