"""Data flow: which op made what each op reads, and who reads it later.

Storages are memory and may be written many times; a Value is one op's write to one of them. Views share a storage and
start no kernel, so they vanish here by themselves.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gobrrr.diagnose.residency import Access, accesses
from gobrrr.diagnose.segments import Segments
from gobrrr.work.op import Op


@dataclass(slots=True, eq=False)
class Value:
    """What one op wrote into one storage."""

    maker: int
    access: Access
    readers: list[int] = field(default_factory=list)
    outlives_step: bool = False


@dataclass(frozen=True, slots=True)
class Read:
    """One access, in parts by who wrote them."""

    access: Access
    parts: tuple[tuple[float, Value | None], ...]
    """Bytes of the access with the value they belong to; None is what was there before the step."""


@dataclass(frozen=True, slots=True)
class Flow:
    """Of each op, in program order: what it reads and what it makes."""

    reads: Sequence[Sequence[Read]]
    makes: Sequence[Sequence[Value]]

    def values_read(self, op: int) -> Iterator[Value]:
        return (value for read in self.reads[op] for _, value in read.parts if value is not None)


Storages = defaultdict[int, Segments[Value]]


def data_flow(ops: Sequence[Op]) -> Flow:
    storages: Storages = defaultdict(Segments)
    reads: list[list[Read]] = []
    makes: list[list[Value]] = []
    for number, op in enumerate(ops):
        touched = accesses(op)
        reads.append([_read(number, access, storages) for access in touched if not access.writes])
        makes.append([_made(number, access, storages) for access in touched if access.writes])
    _mark_survivors(storages, reads, makes)
    return Flow(reads, makes)


def _read(reader: int, access: Access, storages: Storages) -> Read:
    if access.storage is None:
        return Read(access, ((access.nbytes, None),))
    per_length = access.nbytes / (access.stop - access.start)
    segments = storages[access.storage][access.start, access.stop]
    read = Read(access, tuple((length * per_length, value) for length, value in segments))
    for _, value in read.parts:
        if value is not None:
            value.readers.append(reader)
    return read


def _made(maker: int, access: Access, storages: Storages) -> Value:
    value = Value(maker, access)
    if access.storage is not None:
        storages[access.storage][access.start, access.stop] = value
    return value


def _mark_survivors(storages: Storages, reads: Sequence[Sequence[Read]], makes: Sequence[Sequence[Value]]) -> None:
    """Which values the world after the step may look at.

    A program does not say what is alive after it, so it is told by use. Of a storage whose old content was read, the
    last content stays: parameters, state, statistics, gradients added to. Of any other storage a value is a result if
    no op reads or overwrites it, as a loss, logits, or gradients without an optimizer are; one that was read has
    served. A tensor that the program both uses and returns counts as used, so the floor stays a floor.
    """
    old = {read.access.storage for some in reads for read in some if any(value is None for _, value in read.parts)} - {
        None
    }
    for storage, segments in storages.items():
        for value in segments.notes():
            value.outlives_step = storage in old or not value.readers
    for some in makes:
        for value in some:
            value.outlives_step |= value.access.storage is None
