"""One slab of events to columns: typed by msgspec where it is installed, else by plain json with the same result.

msgspec reads only the fields that are declared, and columns are filled one at a time: no loop in Python over events.
What it refuses (a control character inside a string, a NaN, a number where others write text) plain json may accept.
"""

import json
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import compress
from types import ModuleType, SimpleNamespace
from typing import Any, Union

from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces.categories import is_annotation, is_arrow, is_strange, kind_of
from gobrrr.timing.traces.columns import BETWEEN, NONE, NUMBER, Chunk, Columns, Interned, packed

_CONTROL = bytes(range(32))
_TO_SPACES = bytes.maketrans(_CONTROL, b" " * len(_CONTROL))
"""Between values any of them that JSON allows is a space, and inside a string JSON allows none."""

MOST_NAME = 4096
"""Characters of a name that are kept: the longest kernel names have some 3000, and nobody reads them to the end."""

MOST_US = 1e18
"""Thirty thousand years: no clock shows a later time."""

MOST_CATEGORY, MOST_STRANGE = 40, 8
"""Characters of a category and how many of them are told, of those that nobody knows."""

_SPAN, _MARKS, _ASKING, _ASKED = "X", "iI", "s", "f"
_OTHERS = "BEbneSTpFtCMNODPRcvV(),"
"""Phases of Chrome's format: what holds a lane, what marks a moment, both ends of an arrow, and what says nothing."""

_ARGUMENTS = {
    "external": "External id",
    "sequence": "Sequence number",
    "values": "Concrete Inputs",
    "types": "Input type",
    "strides": "Input Strides",
    "dims": "Input Dims",
    "device": "device",
    "stream": "stream",
    "correlation": "correlation",
    "bytes": "bytes",
    "grid": "grid",
    "external_then": "external id",
    "dims_then": "Input dims",
}
"""Our names to the file's, in its order, for msgspec looks for a key behind the one before it. `then` is how the first
profilers spelled it."""

_ALLOCATED = "Total Allocated"

_TEXTS = frozenset("dims dims_then strides types values grid".split())
"""Arguments that are kept as the JSON text they are."""

_WHOLE = frozenset("external external_then correlation sequence bytes allocated".split())
"""Arguments that are whole numbers; what was written otherwise is read by plain json, and what is none is not there."""


@dataclass(frozen=True, slots=True)
class _Events:
    """Of a slab, by what they are."""

    number: int
    spans: Sequence[Any]
    marks: Sequence[Any]
    asking: Sequence[Any] = ()
    asked: Sequence[Any] = ()
    lost: int = 0


def chunk_of(slab: bytes, *, arrows: bool = False) -> Chunk:
    """The events of this list, with the arrows between them or without; `ValueError` if it is none."""
    msgspec = _msgspec()
    if msgspec is not None:
        for clean in (bytes, lambda text: text.translate(_TO_SPACES)):
            try:
                return _chunk(_typed(clean(slab), arrows=arrows))
            except (msgspec.DecodeError, UnicodeDecodeError, struct.error):
                continue
    return chunk_of_events(json.loads(slab.decode(errors="replace"), strict=False), arrows=arrows)


def chunk_of_events(events: Iterable[Any], *, arrows: bool = False) -> Chunk:
    """The same from plain data; what is no event is counted as lost."""
    listed = list(events)
    plain = [event for one in listed if (event := _plain(one)) is not None]
    return _chunk(
        _Events(
            number=len(listed),
            spans=[event for event in plain if event.ph == _SPAN],
            marks=[event for event in plain if event.ph in (*_MARKS,)],
            asking=[event for event in plain if arrows and event.ph == _ASKING],
            asked=[event for event in plain if arrows and event.ph == _ASKED],
            lost=len(listed) - len(plain),
        )
    )


# **** typed ****


@cache
def _msgspec() -> ModuleType | None:
    try:
        import msgspec
    except ImportError:
        return None
    return msgspec


@cache
def _types(*, arrows: bool) -> dict[str, Any]:
    """Of events, by phase: each with only the fields that we use of it."""
    msgspec = _msgspec()
    assert msgspec is not None
    lane = int | str | None

    def argument(ours: str, theirs: str) -> tuple[str, Any, Any]:
        if ours in _TEXTS:
            return ours, msgspec.Raw, msgspec.field(name=theirs, default=msgspec.Raw())
        if ours in _WHOLE:
            return ours, int, msgspec.field(name=theirs, default=NONE)
        return ours, lane, msgspec.field(name=theirs, default=None)

    def struct(name: str, *members: Any, **options: Any) -> Any:
        return msgspec.defstruct(name, members, frozen=True, gc=False, **options)

    def event(phase: str, *members: Any) -> Any:
        return struct(f"Event{ord(phase)}", *members, tag=phase, tag_field="ph")

    args = struct("Args", *(argument(ours, theirs) for ours, theirs in _ARGUMENTS.items()))
    allocated = struct("Allocated", argument("allocated", _ALLOCATED))
    category, place = ("cat", str | None, None), (("pid", lane, None), ("tid", lane, None), ("ts", float, 0.0))
    arrow = (("id", lane, None), *place, category) if arrows else ()
    return {
        _SPAN: event(_SPAN, category, ("name", str, ""), *place, ("dur", float, float(NONE)), ("args", args, args())),
        **{phase: event(phase, ("args", allocated, allocated())) for phase in _MARKS},
        **{phase: event(phase, *arrow) for phase in (_ASKING, _ASKED)},
        **{phase: event(phase) for phase in _OTHERS},
    }


@cache
def decoder(*, arrows: bool = False) -> Any:
    """Of a list of events: the typed decode that everything else stands on."""
    msgspec = _msgspec()
    assert msgspec is not None
    return msgspec.json.Decoder(list[Union[tuple(_types(arrows=arrows).values())]])  # type: ignore[misc]  # noqa: UP007 (a tuple)


def _typed(slab: bytes, *, arrows: bool) -> _Events:
    events, types = decoder(arrows=arrows).decode(slab), _types(arrows=arrows)
    span, mark, asking, asked = types[_SPAN], types["i"], types[_ASKING], types[_ASKED]
    others = [event for event in events if type(event) is not span]
    return _Events(
        number=len(events),
        spans=[event for event in events if type(event) is span] if others else events,
        marks=[event for event in others if type(event) is mark],
        asking=[event for event in others if type(event) is asking] if arrows else (),
        asked=[event for event in others if type(event) is asked] if arrows else (),
    )


# **** plain ****


def _plain(event: Any) -> SimpleNamespace | None:
    """With the fields of a typed one; None if it is no event, or its times are none."""
    if not isinstance(event, Mapping):
        return None
    args = event.get("args")
    given: Mapping[str, Any] = args if isinstance(args, Mapping) else {}
    try:
        start_us, us = float(event.get("ts") or 0.0), float(event.get("dur", NONE))
    except (TypeError, ValueError, OverflowError):
        return None
    if math.isnan(start_us + us):
        us = float(NONE)  # for a NaN hides among others, and a negative time does not
    return SimpleNamespace(
        ph=str(event.get("ph", "")),
        cat=str(event.get("cat", "")),
        name=str(event.get("name", "")),
        pid=_lane_part(event.get("pid")),
        tid=_lane_part(event.get("tid")),
        ts=start_us,
        dur=us,
        id=_lane_part(event.get("id")),
        args=SimpleNamespace(
            allocated=_whole(given.get(_ALLOCATED)),
            **{ours: _argument(ours, given.get(theirs)) for ours, theirs in _ARGUMENTS.items()},
        ),
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


# **** columns ****


def _chunk(events: _Events) -> Chunk:
    """Columns of the events that hold a lane for a while, filled one after the other."""
    kinds = _Kinds()
    useful, kind = _useful(events.spans, kinds)
    rows, start_us, us = useful, [event.ts for event in useful], [event.dur for event in useful]
    if not _sound(_extremes(start_us), _extremes(us)):
        rows, kind = _useful([one for one in useful if _sound((one.ts, one.ts), (one.dur, one.dur))], kinds)
        start_us, us = [event.ts for event in rows], [event.dur for event in rows]
    args = [event.args for event in rows]
    names, lanes, details = Interned(), Interned(), Interned()
    lane_of = _Lanes(lanes)
    name = [names[event.name] for event in rows]
    columns = Columns(
        kind=packed("b", _renamed(kind, name, names)),
        name=packed("i", name),
        lane=packed(
            "i",
            [
                _device_lane(event, lanes) if number in _ON_DEVICE else lane_of[event.pid][event.tid]
                for number, event in zip(kind, rows, strict=True)
            ],
        ),
        details=packed(
            "i",
            [
                NONE
                if number not in _DETAILED
                else details[BETWEEN.join((one.dims, one.strides, one.types, one.values, b"", b""))]
                if one.dims
                else _detailed(one, details)
                for number, one in zip(kind, args, strict=True)
            ],
        ),
        start_us=packed("d", start_us),
        us=packed("d", us),
        correlation=packed("q", [one.correlation for one in args]),
        external=packed("q", [one.external_then if one.external == NONE else one.external for one in args]),
        sequence=packed("q", [one.sequence for one in args]),
    )
    for ends, number in ((events.asking, NUMBER[SpanKind.ASKING]), (events.asked, NUMBER[SpanKind.ASKED])):
        _add_arrows(columns, [end for end in ends if is_arrow(end.cat)], number, names, lanes)
    return Chunk(
        columns=columns,
        names=[one[:MOST_NAME] for one in names],
        lanes=[(str(holder), str(part)) for holder, part in lanes],
        details=list(details),
        starts_us=_extremes(start_us),
        events=events.number,
        lost=events.lost + len(useful) - len(rows),
        strange=sorted({(category or "")[:MOST_CATEGORY] for category in kinds if is_strange(category)})[:MOST_STRANGE],
        peak_bytes=max((one for mark in events.marks if (one := mark.args.allocated) != NONE), default=None),
    )


def _useful(spans: Sequence[Any], kinds: "_Kinds") -> tuple[Sequence[Any], list[int]]:
    """Those of a kind that says something, mostly all, with its number."""
    kind = [kinds[event.cat] for event in spans]
    if NONE not in kind:
        return spans, kind
    told = [number != NONE for number in kind]
    return list(compress(spans, told)), list(compress(kind, told))


def _add_arrows(columns: Columns, ends: Sequence[Any], number: int, names: Interned, lanes: Interned) -> None:
    """Ends of arrows are rows that take no time; their number is the one of what they join."""
    columns.kind.extend([number] * len(ends))
    columns.name.extend([names[""]] * len(ends))
    columns.lane.extend([lanes[end.pid, end.tid] for end in ends])
    columns.details.extend([NONE] * len(ends))
    columns.start_us.extend([end.ts for end in ends])
    columns.us.extend([0.0] * len(ends))
    columns.correlation.extend([_whole(end.id) for end in ends])
    columns.external.extend([NONE] * len(ends))
    columns.sequence.extend([NONE] * len(ends))


def _sound(start_us: tuple[float, float], us: tuple[float, float]) -> bool:
    """None of them starts at no time that there is, or never ends, if these are the least and the most."""
    return -MOST_US < start_us[0] <= start_us[1] < MOST_US and 0.0 <= us[0] <= us[1] < MOST_US


def _extremes(values: Sequence[float]) -> tuple[float, float]:
    return min(values, default=0.0), max(values, default=0.0)


def _renamed(kind: Sequence[int], name: Sequence[int], names: Iterable[str]) -> Sequence[int]:
    """With what the first profilers listed among the ops as what it is."""
    marks = {place for place, one in enumerate(names) if is_annotation(one)}
    if not marks:
        return kind
    op, annotation = NUMBER[SpanKind.OP], NUMBER[SpanKind.ANNOTATION]
    return [annotation if number == op and one in marks else number for number, one in zip(kind, name, strict=True)]


class _Kinds(dict[str | None, int]):
    """The number of an event's kind by its category."""

    def __missing__(self, category: str | None) -> int:
        kind = kind_of(category)
        self[category] = number = NONE if kind is None else NUMBER[kind]
        return number


_ON_DEVICE = frozenset((NUMBER[SpanKind.KERNEL], NUMBER[SpanKind.TRANSFER]))
_DETAILED = frozenset((NUMBER[SpanKind.OP], NUMBER[SpanKind.ANNOTATION], *_ON_DEVICE))


class _Lanes(dict[Any, "_Parts"]):
    """Places of lanes by holder and then by part: two look-ups of a number are faster than one of a pair."""

    def __init__(self, lanes: Interned) -> None:
        self.lanes = lanes

    def __missing__(self, holder: Any) -> "_Parts":
        self[holder] = parts = _Parts(self.lanes, holder)
        return parts


class _Parts(dict[Any, int]):
    def __init__(self, lanes: Interned, holder: Any) -> None:
        self.lanes, self.holder = lanes, holder

    def __missing__(self, part: Any) -> int:
        self[part] = place = self.lanes[self.holder, part]
        return place


def _device_lane(event: Any, lanes: Interned) -> int:
    args = event.args
    return lanes[event.pid if args.device is None else args.device, event.tid if args.stream is None else args.stream]


def _detailed(args: Any, details: Interned) -> int:
    """The place of what was recorded of arguments that have no sizes as they are spelled now; nothing is no detail."""
    if dims := args.dims_then:
        return details[BETWEEN.join((dims, args.strides, args.types, args.values, b"", b""))]
    if grid := args.grid:
        return details[5 * BETWEEN + bytes(grid)]
    return NONE if args.bytes == NONE else details[b"%b%d%b" % (4 * BETWEEN, args.bytes, BETWEEN)]
