"""Slabs: the text of a trace in pieces of whole events, however large the file is.

Where an event ends is guessed from the text between two of them and proved by decoding: a cut at any other depth leaves
brackets open, and what has brackets open is no JSON. Where a guess fails, the file is read again with exact cuts, which
follow every string and bracket and are some ten times slower.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from gobrrr.errors import BadInput
from gobrrr.timing.traces.inflate import Text

SLAB_BYTES = 2 << 20
"""Large enough that the cost of a slab is that of its events, small enough that a dozen fit into any memory."""

MOST_APART = 256 << 20
"""Bytes of one event, or of what stands outside: beyond, it is no trace, or one made to fill memory."""

_EVENTS = re.compile(rb'"traceEvents"\s*:\s*\[')
_BETWEEN = re.compile(rb"\}\s*,\s*(?=\{)")
_BEHIND = re.compile(rb'(?:\}|\A)[\s,]*(\])\s*(?=,\s*"|\}\s*\Z|\Z)')
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)
_COMMA = re.compile(rb"[\s,]+")
_APART = b" \t\r\n,"
_TAIL = 1 << 20
_NEAR = 1 << 13


@dataclass(slots=True)
class Slabs:
    """Iterated, the slabs as lists of events; afterwards, what stands outside of them and what was lost."""

    text: Text
    exact: bool
    metadata: dict[str, Any] = field(default_factory=dict)
    lost: list[str] = field(default_factory=list)

    def __iter__(self) -> Iterator[bytes]:
        pieces = iter(self.text)
        rest = bytearray(self._begin(pieces))
        for piece in pieces:
            rest += piece
            if len(rest) < SLAB_BYTES:
                continue
            cut = _exact_cut(rest) if self.exact else _Cut(_guessed_end(rest))
            if cut.closed:
                break
            if cut.end:
                yield _bracketed(rest, cut.end)
                del rest[: cut.end]
                _strip(rest)
            elif len(rest) > MOST_APART:
                raise BadInput(f"it has an event of more than {MOST_APART >> 20} MiB")
        yield from self._end(bytes(rest), pieces)
        if self.text.broke_off is not None:
            self.lost.append(f"the file is not whole: {self.text.broke_off}")

    def _begin(self, pieces: Iterator[bytes]) -> bytes:
        """What follows the bracket that opens the events."""
        head = b""
        for piece in pieces:
            head += piece
            begun = head.lstrip(b"\xef\xbb\xbf" + _APART)
            if begun[:1] == b"[":
                return begun[1:]
            if begun and begun[:1] != b"{":
                break
            if opening := _EVENTS.search(head):
                self._note(head[: opening.start()].strip(_APART) + b"}")
                return head[opening.end() :]
            if len(head) > MOST_APART:
                raise BadInput(f"its first {MOST_APART >> 20} MiB hold no events")
        raise BadInput(self.text.broke_off or _not_a_trace(head))

    def _end(self, rest: bytes, pieces: Iterator[bytes]) -> Iterator[bytes]:
        """The last events and what stands behind them; a file that breaks off loses the event it breaks off in."""
        closing = _exact_closing(rest) if self.exact else _guessed_closing(rest)
        if closing is not None:
            yield _bracketed(rest, _end_of(rest[:closing]))
            behind = (rest[closing + 1 :] + b"".join(_at_most(pieces, MOST_APART))).strip(_APART)
            if behind and not self._note(b"{" + behind):
                self.lost.append("what stands behind its events could not be read")
            return
        end = _end_of(rest)
        end = end if _is_json(_bracketed(rest, end)) else self._last_end(rest)
        yield _bracketed(rest, end)
        partial = ", the last of which is lost" if rest[end:].strip(_APART) else ""
        self.lost.append(f"the file breaks off within its events{partial}")

    def _last_end(self, rest: bytes) -> int:
        return _exact_cut(rest).end if self.exact else _guessed_end(rest, len(rest))

    def _note(self, text: bytes) -> bool:
        """Of what stands outside, all that can be read; whether it could be."""
        try:
            data = json.loads(text.decode(errors="replace"), strict=False)
        except (ValueError, RecursionError):
            return False
        if isinstance(data, dict):
            self.metadata.update(data)
        return True


def _bracketed(rest: bytes | bytearray, end: int) -> bytes:
    with memoryview(rest) as view:
        return b"".join((b"[", view[:end], b"]"))


def _end_of(events: bytes) -> int:
    """Of the last one: writers that append to a list leave a comma behind it, and Chrome's own reader allows that."""
    return len(events.rstrip(_APART))


def _strip(rest: bytearray) -> None:
    """Of the comma behind the event before."""
    if apart := _COMMA.match(rest):
        del rest[: apart.end()]


class _Cut(NamedTuple):
    end: int
    """Of the last whole event; 0 if none is whole."""
    closed: bool = False
    """The events end there."""


def _guessed_end(rest: bytes | bytearray, window: int = _TAIL) -> int:
    """Behind the last event that another one follows; looked for where it mostly is before everywhere."""
    for size in (_NEAR, window):
        ends = [between.start() + 1 for between in _BETWEEN.finditer(rest, max(0, len(rest) - size))]
        if ends:
            return ends[-1]
    return 0


def _guessed_closing(rest: bytes) -> int | None:
    """The first bracket near the end behind which the rest of an object follows, or nothing at all."""
    for bracket in _BEHIND.finditer(rest, max(0, len(rest) - _TAIL)):
        behind = rest[bracket.end(1) :].strip(_APART)
        if not behind or _is_json(b"{" + behind):
            return bracket.start(1)
    return None


def _is_json(text: bytes) -> bool:
    try:
        json.loads(text.decode(errors="replace"), strict=False)
    except (ValueError, RecursionError):
        return False
    return True


def _exact_cut(rest: bytes | bytearray) -> _Cut:
    """By following every string and bracket from the first event on."""
    end = depth = 0
    for token in _TOKEN.finditer(rest):
        sign = token[0][:1]
        if sign in b"{[":
            depth += 1
        elif sign != b'"':
            depth -= 1
            if depth < 0:
                return _Cut(end, closed=True)
            end = token.end() if depth == 0 else end
    return _Cut(end)


def _exact_closing(rest: bytes) -> int | None:
    cut = _exact_cut(rest)
    return rest.index(b"]", cut.end) if cut.closed and b"]" in rest[cut.end :] else None


def single_events(slab: bytes) -> Iterator[bytes]:
    """The events of a slab one by one."""
    start, depth = 0, -1
    for token in _TOKEN.finditer(slab):
        sign = token[0][:1]
        if sign in b"{[":
            start = token.start() if depth == 0 else start
            depth += 1
        elif sign != b'"':
            depth -= 1
            if depth == 0:
                yield slab[start : token.end()]


_OTHERS = {
    b"\x1f\x8b": "it was compressed twice: gunzip it once",
    b"PK\x03\x04": "it is a zip archive: unpack it first",
    b"(\xb5/\xfd": "it is compressed by zstd: decompress it first",
    b"\xfd7zXZ": "it is compressed by xz: decompress it first",
    b"BZh": "it is compressed by bzip2: decompress it first",
    b"\xff\xfe": "it is text in UTF-16: save it as UTF-8",
    b"\xfe\xff": "it is text in UTF-16: save it as UTF-8",
    b"version https://git-lfs": "it is a pointer that Git LFS left in its place: git lfs pull",
    b"SQLite format 3": "it is a database, as Nsight Systems exports, and not what torch's profiler writes",
    b"<": "it is a page of HTML or XML, as a server sends instead of a file",
}
"""What people have in their hands instead of a trace, by how it begins."""


def _not_a_trace(head: bytes) -> str:
    if not head.strip(_APART):
        return "it is empty"
    if other := next((sentence for begun, sentence in _OTHERS.items() if head.startswith(begun)), None):
        return other
    if not _is_json(head):
        return "it is not JSON"
    return "it is JSON without traceEvents, so no trace of torch's profiler"


def _at_most(pieces: Iterator[bytes], size: int) -> Iterator[bytes]:
    for piece in pieces:
        size -= len(piece)
        if size < 0:
            return
        yield piece
