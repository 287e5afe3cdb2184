"""Processes that decode slabs side by side.

Text and chunks pass through pages that all of them share, where a pipe would copy each four times in small pieces; the
chunk takes the place of its text. The slabs go round: no queue, and no thread that fights the reading one for Python.
"""

import pickle
import signal
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from mmap import mmap
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import TypeAlias

from gobrrr.errors import Missing
from gobrrr.timing.traces.columns import Chunk
from gobrrr.timing.traces.slabs import SLAB_BYTES

Decode: TypeAlias = Callable[[bytes], Chunk]

AHEAD = 3
"""Slabs in flight for each process: more would only fill memory."""

PLACE_BYTES = 2 * SLAB_BYTES
"""Of the shared pages, for one slab: as good as none is larger, and such a one is decoded by whoever has it."""


def decoded_together(slabs: Iterable[bytes], decode: Decode, processes: int) -> Iterator[Chunk]:
    """The chunks in the order of the slabs, decoded by so many processes, which inherit the function."""
    with mmap(-1, AHEAD * processes * PLACE_BYTES) as pages, _workers(pages, decode, processes) as wires:
        table = _Table(pages, wires)
        asked = answered = 0
        for slab in slabs:
            fits = len(slab) <= PLACE_BYTES
            while answered < asked and (not fits or asked - answered == AHEAD * processes):
                yield table.chunk(answered)
                answered += 1
            if fits:
                table.put(asked, slab)
                asked += 1
            else:
                yield decode(slab)
        yield from map(table.chunk, range(answered, asked))


@dataclass(frozen=True, slots=True)
class _Table:
    """Slabs and chunks by number: each has a place on the pages and a process at the other end of a wire."""

    pages: mmap
    wires: list[Connection]

    def put(self, number: int, slab: bytes) -> None:
        start = _start(number, len(self.wires))
        self.pages[start : start + len(slab)] = slab
        with _noticed():
            self.wires[number % len(self.wires)].send((start, len(slab)))

    def chunk(self, number: int) -> Chunk:
        with _noticed():
            answer = self.wires[number % len(self.wires)].recv()
        if isinstance(answer, Exception):
            raise answer
        start = _start(number, len(self.wires))
        chunk: Chunk = pickle.loads(self.pages[start : start + answer]) if isinstance(answer, int) else answer  # noqa: S301 (our own)
        return chunk


@contextmanager
def _noticed() -> Iterator[None]:
    try:
        yield
    except (EOFError, ConnectionError):
        raise Missing("a process that read the trace was ended, as happens where memory runs out") from None


def _start(number: int, processes: int) -> int:
    return number % (AHEAD * processes) * PLACE_BYTES


@contextmanager
def _workers(pages: mmap, decode: Decode, processes: int) -> Iterator[list[Connection]]:
    """Wires to processes that work until they are ended."""
    context = get_context("fork")
    wires: list[Connection] = []
    started = []
    try:
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_work, args=(theirs, pages, decode), daemon=True)
            process.start()
            theirs.close()  # or its end would not be heard of
            wires.append(ours)
            started.append(process)
        yield wires
    finally:
        for process in started:
            process.kill()
        for process in started:
            process.join()


def _work(wire: Connection, pages: mmap, decode: Decode) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started us hears it too, and ends us
    while True:
        start, length = wire.recv()
        try:
            chunk = decode(pages[start : start + length])
        except Exception as error:  # noqa: BLE001 (raised where it was asked for)
            wire.send(error)
            continue
        packed = pickle.dumps(chunk, pickle.HIGHEST_PROTOCOL)
        if len(packed) <= PLACE_BYTES:
            pages[start : start + len(packed)] = packed
            wire.send(len(packed))
        else:
            wire.send(chunk)
