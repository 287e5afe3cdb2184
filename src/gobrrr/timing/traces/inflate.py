"""A file's text in pieces, inflated where it is compressed; one that breaks off gives what there was and says so."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from gobrrr.timing.traces.source import PIECE_BYTES, Source, pieces

SALVAGED_BYTES = 1 << 16
"""Of compressed text at a time: where some of it is damaged, so much is lost before it."""

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
"""What zlib's interface calls a stream with gzip's header."""


@dataclass(slots=True)
class Text:
    """Iterated, the pieces; a bomb comes in pieces like everything else."""

    source: Source
    broke_off: str | None = None
    """Why there was no more, if that was not the end."""

    def __iter__(self) -> Iterator[bytes]:
        raw = pieces(self.source)
        begun = next(raw, b"")
        if begun[:2] == _GZIP:
            yield from self._inflated(begun, raw)
            return
        yield begun
        yield from raw

    def _inflated(self, begun: bytes, raw: Iterator[bytes]) -> Iterator[bytes]:
        """Member after member. What follows the last one and is none is not the trace's."""
        engine = _engine()
        inflater = engine.decompressobj(_GZIP_WINDOW)
        while begun or (begun := next(raw, b"")):
            fed, begun = begun[:SALVAGED_BYTES], begun[SALVAGED_BYTES:]
            try:
                yield inflater.decompress(fed, PIECE_BYTES)
            except engine.error as error:
                self.broke_off = f"its compressed data is damaged ({error})"
                return
            begun = inflater.unconsumed_tail + begun
            if inflater.eof:
                begun = inflater.unused_data + begun or next(raw, b"")
                if begun[:2] != _GZIP:
                    return
                inflater = engine.decompressobj(_GZIP_WINDOW)
        self.broke_off = "its compressed data breaks off"


def _engine() -> Any:
    """ISA-L's inflate where it is installed, three times as fast, else zlib's."""
    try:
        from isal import isal_zlib
    except ImportError:
        import zlib

        return zlib
    return isal_zlib
