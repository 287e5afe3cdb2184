"""Where a trace lies: a file of this machine, or behind any address that fsspec can open."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from gobrrr.errors import Missing
from gobrrr.extras import need

PIECE_BYTES = 1 << 20

_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Address:
    """`s3://bucket/trace.json.gz`, `https://…`, and whatever else fsspec knows or is taught."""

    url: str

    def __str__(self) -> str:
        return self.url

    @property
    def name(self) -> str:
        return self.url.rstrip("/").rpartition("/")[2]


Source: TypeAlias = Path | Address


def source_of(text: str) -> Source:
    return Address(text) if _ADDRESS.match(text) else Path(text)


def pieces(source: Source) -> Iterator[bytes]:
    """All of its bytes, one piece after the other; `OSError` if it cannot be read."""
    return _local(source) if isinstance(source, Path) else _remote(source)


def _local(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            yield piece


def _remote(address: Address) -> Iterator[bytes]:
    """A store's client has errors of its own, and fsspec says which package brings the client."""
    fsspec = need("fsspec", "remote")
    try:
        with fsspec.open(address.url, "rb") as file:
            while piece := file.read(PIECE_BYTES):
                yield piece
    except ImportError as error:
        raise Missing(f"{address} cannot be opened: {error}") from None
    except OSError:
        raise
    except Exception as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
