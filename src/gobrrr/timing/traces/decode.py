"""One slab of events to columns: typed by msgspec where it is installed, else by plain json with the same result.

msgspec reads only the fields that are declared, and columns are filled one at a time: no loop in Python over events.
What it refuses (a control character inside a string, a NaN, a number where others write text) plain json may accept.
"""

import json
import math
from array import array
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from types import ModuleType, SimpleNamespace
from typing import Any

from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.categories import is_annotation, kind_of
from gobrrr.timing.traces.columns import NONE, NUMBER, Chunk, Columns, Details, Interned

_CONTROL = bytes(range(32))
_TO_SPACES = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))
"""Between values any of them that JSON allows is a space, and inside a string JSON allows none."""

MOST_NAME = 4096
"""Characters of a name that are kept: the longest kernel names have some 3000, and nobody reads them to the end."""

_ARGUMENTS = {
    "external": "External id",
    "external_then": "external id",
    "correlation": "correlation",
    "device": "device",
    "stream": "stream",
    "sequence": "Sequence number",
    "bytes": "bytes",
    "allocated": "Total Allocated",
    "dims": "Input Dims",
    "dims_then": "Input dims",
    "strides": "Input Strides",
    "types": "Input type",
    "values": "Concrete Inputs",
    "stack": "Call stack",
}
"""Our names to the file's. `then` is how the first profilers spelled it."""

_TEXTS = frozenset("dims dims_then strides types values stack".split())
"""Arguments that are kept as the JSON text they are."""

_WHOLE = frozenset("external external_then correlation sequence bytes allocated".split())
"""Arguments that are whole numbers; what was written otherwise is read by plain json, and what is none is not there."""


@cache
def _msgspec() -> ModuleType | None:
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


@cache
def _decoder() -> Any:
    """Of a list of events, with only the fields that we use."""
    msgspec = _msgspec()
    assert msgspec is not None
    lane = int | str | None

    def argument(ours: str, theirs: str) -> tuple[str, Any, Any]:
        if ours in _TEXTS:
            return ours, msgspec.Raw, msgspec.field(name=theirs, default=msgspec.Raw())
        if ours in _WHOLE:
            return ours, int, msgspec.field(name=theirs, default=NONE)
        return ours, lane, msgspec.field(name=theirs, default=None)

    arguments = [argument(ours, theirs) for ours, theirs in _ARGUMENTS.items()]
    args = msgspec.defstruct("Args", arguments, frozen=True, gc=False)
    event = msgspec.defstruct(
        "Event",
        [
            ("ph", str, ""),
            ("cat", str | None, None),
            ("name", str, ""),
            ("pid", lane, None),
            ("tid", lane, None),
            ("ts", float, 0.0),
            ("dur", float, float(NONE)),
            ("id", lane, None),
            ("args", args, msgspec.field(default=args())),
        ],
        gc=False,
    )
    return msgspec.json.Decoder(list[event])


def chunk_of(slab: bytes, *, arrows: bool = False) -> Chunk:
    """The events of this list, with the arrows between them or without; `ValueError` if it is none."""
    msgspec = _msgspec()
    if msgspec is not None:
        for clean in (bytes, lambda text: text.translate(_TO_SPACES)):
            try:
                return _chunk(_decoder().decode(clean(slab)), arrows=arrows)
            except (msgspec.DecodeError, UnicodeDecodeError, OverflowError):
                continue
    return chunk_of_events(json.loads(slab.decode(errors="replace"), strict=False), arrows=arrows)


def chunk_of_events(events: Iterable[Any], *, arrows: bool = False) -> Chunk:
    """The same from plain data; what is no event is counted as lost."""
    listed = list(events)
    plain = [event for one in listed if (event := _plain(one)) is not None]
    chunk = _chunk(plain, arrows=arrows)
    chunk.events, chunk.lost = len(listed), chunk.lost + len(listed) - len(plain)
    return chunk


def _plain(event: Any) -> SimpleNamespace | None:
    """With the fields of a typed event; None if its times are none."""
    if not isinstance(event, Mapping):
        return None
    args = event.get("args")
    given: Mapping[str, Any] = args if isinstance(args, Mapping) else {}
    try:
        start_us, us = float(event.get("ts") or 0.0), float(event.get("dur", NONE))
    except (TypeError, ValueError, OverflowError):
        return None
    return SimpleNamespace(
        ph=str(event.get("ph", "")),
        cat=str(event.get("cat", "")),
        name=str(event.get("name", "")),
        pid=_lane_part(event.get("pid")),
        tid=_lane_part(event.get("tid")),
        ts=start_us,
        dur=us,
        id=_lane_part(event.get("id")),
        args=SimpleNamespace(**{ours: _argument(ours, given.get(theirs)) for ours, theirs in _ARGUMENTS.items()}),
    )


def _argument(name: str, value: Any) -> Any:
    if name in _TEXTS:
        return b"" if value is None else json.dumps(value).encode()
    return _whole(value) if name in _WHOLE else _lane_part(value)


def _lane_part(value: Any) -> int | str | None:
    return value if value is None or isinstance(value, int | str) else str(value)


def _whole(value: Any) -> int:
    """A number, however it was written."""
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 18:
        return int(value)
    if isinstance(value, int | float) and 0 <= value < 1 << 62:
        return int(value)
    return NONE


def _chunk(events: Sequence[Any], *, arrows: bool) -> Chunk:
    """Columns of the events that hold a lane for a while, filled one after the other."""
    kinds = _Kinds(arrows=arrows)
    kind = [kinds[event.ph, event.cat] for event in events]
    rows = [event for event, number in zip(events, kind, strict=True) if number != NONE]
    kind = [number for number in kind if number != NONE]
    unsound = _unsound(rows, kind)
    if unsound:
        kind = [number for place, number in enumerate(kind) if place not in unsound]
        rows = [event for place, event in enumerate(rows) if place not in unsound]
    args = [event.args for event in rows]
    names, lanes, details = Interned(), Interned(), Interned()
    name = array("i", [names[event.name] for event in rows])
    columns = Columns(
        kind=array("b", _renamed(kind, name, names)),
        name=name,
        lane=array(
            "i",
            [
                lanes[_device_lane(event)] if number in _ON_DEVICE else lanes[event.pid, event.tid]
                for number, event in zip(kind, rows, strict=True)
            ],
        ),
        details=array(
            "i", [_detailed(one, details) if number in _DETAILED else NONE for number, one in zip(kind, args, strict=True)]
        ),
        start_us=array("d", [event.ts for event in rows]),
        us=array("d", [event.dur for event in rows]),
        correlation=array(
            "q",
            [
                _whole(event.id) if number in _ARROWS else event.args.correlation
                for number, event in zip(kind, rows, strict=True)
            ]
            if arrows
            else [one.correlation for one in args],
        ),
        external=array("q", [one.external_then if one.external == NONE else one.external for one in args]),
        sequence=array("q", [one.sequence for one in args]),
    )
    allocated = [event.args.allocated for event in events if event.ph == "i"]
    return Chunk(
        columns=columns,
        names=[one[:MOST_NAME] for one in names],
        lanes=[(str(holder), str(part)) for holder, part in lanes],
        details=[Details(*one) for one in details],
        events=len(events),
        lost=len(unsound),
        peak_bytes=max((one for one in allocated if one != NONE), default=None),
    )


def _unsound(rows: Sequence[Any], kind: Sequence[int]) -> set[int]:
    """Places of those that start at no time that there is, or never end; an arrow takes none."""
    starts, lengths = [event.ts for event in rows], [event.dur for event in rows]
    if math.isfinite(sum(starts)) and math.isfinite(sum(lengths)) and min(lengths, default=0.0) >= 0:
        return set()
    return {
        place
        for place, (start_us, us, number) in enumerate(zip(starts, lengths, kind, strict=True))
        if not (math.isfinite(start_us) and (number in _ARROWS or 0.0 <= us < math.inf))
    }


def _renamed(kind: Sequence[int], name: Sequence[int], names: Iterable[str]) -> Sequence[int]:
    """With what the first profilers listed among the ops as what it is."""
    marks = {place for place, one in enumerate(names) if is_annotation(one)}
    if not marks:
        return kind
    op, annotation = NUMBER[SpanKind.OP], NUMBER[SpanKind.ANNOTATION]
    return [annotation if number == op and one in marks else number for number, one in zip(kind, name, strict=True)]


class _Kinds(dict[tuple[str, str | None], int]):
    """The number of an event's kind by its phase and category."""

    def __init__(self, *, arrows: bool) -> None:
        self._arrows = arrows

    def __missing__(self, key: tuple[str, str | None]) -> int:
        kind = kind_of(*key)
        self[key] = number = NONE if kind is None else NUMBER[kind]
        if number in _ARROWS and not self._arrows:
            self[key] = number = NONE
        return number


_ON_DEVICE = frozenset((NUMBER[SpanKind.KERNEL], NUMBER[SpanKind.TRANSFER]))
_DETAILED = frozenset((NUMBER[SpanKind.OP], NUMBER[SpanKind.ANNOTATION], *_ON_DEVICE))
_ARROWS = frozenset((NUMBER[SpanKind.ASKING], NUMBER[SpanKind.ASKED]))


def _device_lane(event: Any) -> tuple[Any, Any]:
    args = event.args
    return event.pid if args.device is None else args.device, event.tid if args.stream is None else args.stream


def _detailed(args: Any, details: Interned) -> int:
    """The place of what was recorded of the arguments; that nothing was is no detail."""
    dims = bytes(args.dims) or bytes(args.dims_then)
    if dims:
        return details[dims, bytes(args.strides), bytes(args.types), bytes(args.values), bytes(args.stack)]
    return NONE if args.bytes == NONE else details[b"", b"", b"", b"", b"%d" % args.bytes]
