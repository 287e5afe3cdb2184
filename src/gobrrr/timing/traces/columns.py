"""Columns: the rows of a trace as arrays of numbers, with every name and every shape kept once."""

import re
import struct
from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

from gobrrr.timing.timeline import SpanKind

KINDS = tuple(SpanKind)
NUMBER = {kind: number for number, kind in enumerate(KINDS)}
NONE = -1
"""In a column of whole numbers, for what was not recorded; ids and places are never negative."""

Lane: TypeAlias = tuple[str, str]
"""Process and thread of the host, device and stream of an accelerator."""


class Details(NamedTuple):
    """What was recorded of an op's arguments, as JSON text; equal ones are kept once."""

    dims: bytes = b""
    strides: bytes = b""
    types: bytes = b""
    values: bytes = b""
    moved: int | None = None
    """Bytes, of a copy or a fill by the device itself."""
    grid: bytes = b""
    """Blocks that a kernel was launched with."""

    @classmethod
    def of(cls, key: bytes) -> "Details":
        """From its texts in one, as they are compared: JSON holds no byte of zero."""
        dims, strides, types, values, moved, grid = key.split(BETWEEN)
        return cls(dims, strides, types, values, int(moved) if moved else None, grid)


BETWEEN = b"\0"
"""The texts of details."""


Whole: TypeAlias = "array[int]"
Real: TypeAlias = "array[float]"
"""In quotes: before Python 3.12 an array has no type of its items while running."""


def _numbers() -> Whole:
    return array("q")


@dataclass(slots=True)
class Columns:
    """One row for each span, in the order of the file. Times are microseconds on the trace's own clock."""

    kind: Whole = field(default_factory=lambda: array("b"))
    name: Whole = field(default_factory=lambda: array("i"))
    lane: Whole = field(default_factory=lambda: array("i"))
    details: Whole = field(default_factory=lambda: array("i"))
    start_us: Real = field(default_factory=lambda: array("d"))
    us: Real = field(default_factory=lambda: array("d"))
    correlation: Whole = field(default_factory=_numbers)
    external: Whole = field(default_factory=_numbers)
    """The profiler's number of the op around it, or its own."""
    sequence: Whole = field(default_factory=_numbers)
    """Joins a forward op with its backward."""

    def __len__(self) -> int:
        return len(self.kind)

    def rows(self, *kinds: SpanKind) -> list[int]:
        wanted = bytearray(256)
        for kind in kinds:
            wanted[NUMBER[kind]] = True
        flags = self.kind.tobytes().translate(wanted)
        if flags.count(True) < len(flags) // FEW:
            return [flag.start() for flag in _FLAG.finditer(flags)]
        return list(compress(range(len(flags)), flags))


FEW = 8
"""One row in so many: up to there looking for them is faster than looking at all."""

_FLAG = re.compile(b"\1")


class Block(NamedTuple):
    """Rows of a slab, and when the first and last of them start: files are in the order of time for long stretches."""

    rows: range
    first_us: float
    last_us: float


class Interned(dict[Any, int]):
    """Each key's place in order of first sight."""

    def __missing__(self, key: Any) -> int:
        self[key] = place = len(self)
        return place


@dataclass(slots=True)
class Chunk:
    """The rows of one slab, with tables of its own; small, for it travels between processes."""

    columns: Columns
    names: list[str]
    lanes: list[Lane]
    details: list[bytes]
    """Keys of Details."""
    starts_us: tuple[float, float]
    """Of its spans, the first and the last; the ends of arrows are left out."""
    events: int
    """All that were there, those of no use too."""
    lost: int = 0
    """Events that could not be read."""
    strange: list[str] = field(default_factory=list)
    """Categories of spans that no profiler of torch's has; their rows are left out."""
    peak_bytes: int | None = None
    """The most memory that the device was seen to have given out."""


@dataclass(slots=True)
class Tables:
    """All chunks together."""

    columns: Columns = field(default_factory=Columns)
    names: Interned = field(default_factory=Interned)
    lanes: Interned = field(default_factory=Interned)
    details: Interned = field(default_factory=Interned)
    blocks: list[Block] = field(default_factory=list)
    events: int = 0
    lost: int = 0
    strange: set[str] = field(default_factory=set)
    peak_bytes: int | None = None

    def add(self, chunk: Chunk) -> None:
        """A chunk's places are its own: they are looked up again in our tables."""
        own, more = self.columns, chunk.columns
        self.blocks.append(Block(range(len(own), len(own) + len(more)), *chunk.starts_us))
        own.name.extend(_moved(more.name, [self.names[name] for name in chunk.names]))
        own.lane.extend(_moved(more.lane, [self.lanes[lane] for lane in chunk.lanes]))
        own.details.extend(_moved(more.details, [*(self.details[one] for one in chunk.details), NONE]))
        for column in fields(Columns):
            if column.name not in ("name", "lane", "details"):
                getattr(own, column.name).extend(getattr(more, column.name))
        self.events += chunk.events
        self.lost += chunk.lost
        self.strange.update(chunk.strange)
        self.peak_bytes = max((one for one in (self.peak_bytes, chunk.peak_bytes) if one is not None), default=None)

    def trace(self, metadata: Mapping[str, Any] | None = None, lost: tuple[str, ...] = ()) -> "Trace":
        return Trace(
            columns=self.columns,
            names=list(self.names),
            lanes=list(self.lanes),
            details=[Details.of(key) for key in self.details],
            blocks=self.blocks,
            metadata=metadata or {},
            events=self.events,
            lost=lost,
            strange=tuple(sorted(self.strange)),
            peak_bytes=self.peak_bytes,
        )


def _moved(places: Whole, to: Sequence[int]) -> Whole:
    return packed(places.typecode, list(map(to.__getitem__, places)))


def packed(code: str, values: Sequence[Any]) -> "array[Any]":
    """Twice as fast as an array fills itself."""
    return array(code, struct.pack(f"{len(values)}{code}", *values))


@dataclass(frozen=True, slots=True)
class Trace:
    """A recorded trace."""

    columns: Columns
    names: Sequence[str]
    lanes: Sequence[Lane]
    details: Sequence[Details]
    blocks: Sequence[Block]
    metadata: Mapping[str, Any]
    """What stands in the file beside its events."""
    events: int
    lost: tuple[str, ...] = ()
    """What could not be read, in sentences."""
    strange: tuple[str, ...] = ()
    """Categories of spans that were left out, for nobody knows what they are."""
    peak_bytes: int | None = None
    _rows: dict[tuple[SpanKind, ...], list[int]] = field(default_factory=dict, repr=False, compare=False)

    def rows(self, *kinds: SpanKind) -> Sequence[int]:
        """All of these kinds, looked for once."""
        if kinds not in self._rows:
            self._rows[kinds] = self.columns.rows(*kinds)
        return self._rows[kinds]

    def within(self, start_us: float, end_us: float) -> list[int]:
        """The spans that start from then on and before the end."""
        starts = self.columns.start_us
        return [
            row
            for rows, first_us, last_us in self.blocks
            if first_us < end_us and last_us >= start_us
            for row, moment_us in zip(rows, starts[rows.start : rows.stop], strict=True)
            if start_us <= moment_us < end_us
        ]

    def name_of(self, row: int) -> str:
        return self.names[self.columns.name[row]]

    def names_with(self, *words: str) -> frozenset[int]:
        """Places of the names that hold one of these words: there are some hundred names for millions of rows."""
        return frozenset(place for place, name in enumerate(self.names) if any(word in name for word in words))

    def named(self, rows: Iterable[int], *beginnings: str) -> list[int]:
        """Those of the rows whose names begin so."""
        found = {place for place, name in enumerate(self.names) if name.startswith(beginnings)}
        return [row for row in rows if self.columns.name[row] in found]
