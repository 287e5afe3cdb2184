"""Residency: which bytes come from memory and which are still in the cache. One rule for every floor.

A cache of C bytes that replaces the least recently used holds what was touched within the last C bytes of traffic;
real ones map addresses to sets, share room with other clients and choose victims less well, so half of it is counted
on. Walking a step in order, with a clock that ticks in bytes:

- A byte is *read* from the cache if the traffic since it was last touched, the touching op's own included, is at most
  C/2. Counting that op in full makes a stream through a tensor larger than the window evict its own beginning.
- A byte is *written* to the cache if it was last written within C/2: the two writes reach memory as one. A byte that
  was only read there is clean; writing it costs memory a write, however recently it was read.

Steps follow one another, so the walk goes round twice and the second round counts: what the end of a step leaves in
the cache is there when the next begins, and a step smaller than the window runs in the cache altogether.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from gobrrr.diagnose.segments import Segments
from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.op import Op, TensorRef
from gobrrr.work.registry import canonical
from gobrrr.work.work import Work

_OVERWRITING = frozenset({"copy", "_foreach_copy"})
"""Ops whose target is listed among their inputs and not read."""


class Access(NamedTuple):
    """Bytes read or written somewhere in a stretch of a storage: all of them, or fewer, as a gather does."""

    storage: int | None
    start: float
    stop: float
    nbytes: float
    writes: bool


class Traffic(NamedTuple):
    """Bytes by the level that serves them."""

    dram_read: float = 0
    dram_written: float = 0
    cache_read: float = 0
    cache_written: float = 0

    @property
    def dram(self) -> float:
        return self.dram_read + self.dram_written

    @property
    def cache(self) -> float:
        return self.cache_read + self.cache_written

    @property
    def bytes(self) -> float:
        return self.dram + self.cache

    @property
    def from_memory(self) -> float:
        """The share of them; of none all."""
        return self.dram / self.bytes if self.bytes else 1.0


class Touch(NamedTuple):
    """When a byte was last touched, and when last written, by the clock of traffic."""

    touched: float
    written: float


_NEVER = float("-inf")


def accesses(op: Op) -> tuple[Access, ...]:
    """What an op touches; one that starts no kernel touches nothing."""
    if not op.launches:
        return ()
    read = op.inputs
    if canonical(op.name) in _OVERWRITING:
        read = tuple(ref for ref in read if ref not in op.outputs)
    return shared_out(read, op.outputs, op.work)


def shared_out(read: Iterable[TensorRef], written: Iterable[TensorRef], work: Work | None) -> tuple[Access, ...]:
    """The bytes of a Work among operands, in proportion to their sizes.

    Work says how many bytes are read and written in all; operands say where. An embedding lists its whole table and
    reads a few rows: each operand then counts with the same share of its bytes. The sum is exact.
    """
    return (
        *_shared(dict.fromkeys(read), work.bytes_read if work else None, writes=False),
        *_shared(dict.fromkeys(written), work.bytes_written if work else None, writes=True),
    )


def _shared(refs: Iterable[TensorRef], total: float | None, *, writes: bool) -> list[Access]:
    """Where the Work is unknown: all of each operand, as far as its width is known."""
    known = [(ref.storage, _extent(*ref[1:])) for ref in refs if ref.dtype in ITEM_BYTES]
    listed = sum(extent.nbytes for _, extent in known)
    if not listed or total == 0:
        return []
    share = 1.0 if total is None else total / listed
    return [
        Access(storage, extent.start, extent.stop, extent.nbytes * share, writes)
        for storage, extent in known
        if extent.nbytes
    ]


class _Extent(NamedTuple):
    start: float
    stop: float
    nbytes: float


@lru_cache(maxsize=1 << 14)
def _extent(offset: int, shape: tuple[int, ...], stride: tuple[int, ...], dtype: str) -> _Extent:
    """Where in its storage a view lies. The layers of a model repeat the same few views of different storages."""
    ref = TensorRef(None, offset, shape, stride, dtype)
    return _Extent(offset * ref.item_bytes, (offset + ref.span) * ref.item_bytes, ref.unique_bytes)


def residency(sequence: Sequence[Sequence[Access]], cache_bytes: float | None) -> list[Traffic]:
    """The traffic of each op, or group of ops, of a step that repeats. Without a known cache all of it is memory's.

    Where no storage is known, as in a trace, the first round would leave nothing to find for the second.
    """
    walk = _Walk((cache_bytes or 0) / 2)
    if any(access.storage is not None for touched in sequence for access in touched):
        for touched in sequence:
            walk.traffic(touched)
    return [walk.traffic(touched) for touched in sequence]


_LIKELY_SHARE = 0.65
"""Of a cache, that what is as large is found in: with a half, compiled vision models on an RTX 4090 would be predicted
6 % too slow, with all of it 4 % too fast."""


def likely_residency(sequence: Sequence[Sequence[Access]], cache_bytes: float) -> list[Traffic]:
    """The same for predictions: what a cache is likely to hold, not what may be counted on.

    Real caches keep a share of what is larger than they are: on an RTX 4090 kernels find nearly all of 65 MB in its 72,
    and a third of 200. And what is new lies where something old has just been freed: its write meets a
    line that is there as often as one of the op's own bytes would be.
    """
    walk = _LikelyWalk(_LIKELY_SHARE * cache_bytes)
    for touched in sequence:
        walk.traffic(touched)
    return [walk.traffic(touched) for touched in sequence]


class _Walk:
    """A clock of traffic, and when each byte was last touched."""

    def __init__(self, window: float) -> None:
        self._window = window
        self._clock = 0.0
        self._own = 0.0
        self._storages: defaultdict[int, Segments[Touch]] = defaultdict(Segments)

    def traffic(self, touched: Sequence[Access]) -> Traffic:
        """All of an op's accesses meet the cache as the op before left it; then they leave their mark."""
        self._own = sum([access.nbytes for access in touched])
        read = written = cache_read = cache_written = 0.0
        for access in touched:
            if access.writes:
                written += access.nbytes
                cache_written += self._cached(access)
            else:
                read += access.nbytes
                cache_read += self._cached(access)
        traffic = Traffic(read - cache_read, written - cache_written, cache_read, cache_written)
        for access in touched:
            self._mark(access)
        self._clock += traffic.bytes
        return traffic

    def _cached(self, access: Access) -> float:
        """The share of the stretch that is in the window, of the bytes touched in it."""
        if access.storage is None or not self._window:
            return 0.0
        resident = sum(
            length * self._held(_NEVER if touch is None else touch.written if access.writes else touch.touched, access)
            for length, touch in self._storages[access.storage][access.start, access.stop]
        )
        return access.nbytes * (resident / (access.stop - access.start))

    def _held(self, since: float, _access: Access) -> float:
        """The share that is still there of what was touched then."""
        return 1.0 if since >= self._clock - self._window else 0.0

    def _mark(self, access: Access) -> None:
        if access.storage is None:
            return
        segments, at = self._storages[access.storage], access.start
        for length, touch in list(segments[access.start, access.stop]):
            written = self._clock if access.writes else touch.written if touch else _NEVER
            segments[at, at + length] = Touch(self._clock, written)
            at += length


class _LikelyWalk(_Walk):
    def _held(self, since: float, access: Access) -> float:
        age = self._clock - since
        if access.writes:
            age = min(age, self._own)
        return min(1.0, self._window / age) if age else 1.0
