"""A step as tracks over time: its ops, their regimes, the gaps between them by cause, and the fraction attained."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from gobrrr.diagnose.attribute import Attributed, attribute
from gobrrr.diagnose.gaps import device_gaps
from gobrrr.exam import Exam


@dataclass(frozen=True, slots=True)
class Slice:
    name: str
    start_s: float
    seconds: float
    notes: Mapping[str, str | float] = field(default_factory=dict)
    """What is known of it beyond its name; what is unknown is not among them."""


@dataclass(frozen=True, slots=True)
class Level:
    """Of a counter, from then on."""

    start_s: float
    value: float


@dataclass(frozen=True, slots=True)
class Track:
    name: str
    slices: tuple[Slice, ...] = ()
    levels: tuple[Level, ...] = ()


@dataclass(frozen=True, slots=True)
class Step:
    """All tracks of one Exam."""

    name: str
    tracks: tuple[Track, ...]


def step_of(exam: Exam) -> Step:
    kernels, _ = attribute(exam)
    by_stream: defaultdict[int, list[Attributed]] = defaultdict(list)
    for one in sorted(kernels, key=lambda one: one.kernel.start_s):
        by_stream[one.kernel.stream].append(one)
    several = len(by_stream) > 1
    tracks = [Track("step", (Slice(exam.target, 0.0, exam.step_s),))]
    for stream, own in by_stream.items():
        tracks += _of_stream(own, f", stream {stream}" if several else "")
    gaps = device_gaps(exam.kernels, exam.gap_before_s)
    tracks.append(Track("gaps", tuple(Slice(gap.cause, gap.start_s, gap.seconds) for gap in gaps)))
    return Step(f"{exam.target} on {exam.ceilings.device}", tuple(tracks))


def _of_stream(kernels: Sequence[Attributed], where: str) -> Iterator[Track]:
    yield Track(f"ops{where}", tuple(_apart(_op(one) for one in kernels)))
    yield Track(f"regimes{where}", tuple(_apart(_named(one, one.regime.value) for one in kernels)))
    yield Track(f"attained{where}", levels=tuple(_attained(kernels)))


def _op(one: Attributed) -> Slice:
    return _named(one, one.kernel.name if one.op is None else one.op.name, dict(_notes(one)))


def _named(one: Attributed, name: str, notes: Mapping[str, str | float] | None = None) -> Slice:
    return Slice(name, one.kernel.start_s, one.kernel.seconds, notes or {})


def _notes(one: Attributed) -> Iterator[tuple[str, str | float]]:
    yield "kernel", one.kernel.name
    yield "class", one.cls.value
    yield "regime", one.regime.value
    if one.op is not None:
        yield from (("module", one.op.module), ("phase", one.op.phase.value), ("counted by", one.op.counted_by.value))
    if one.work is not None:
        yield from (("FLOPs", one.work.flops), ("bytes", one.work.bytes))
    if one.floor is not None:
        yield from (("floor_s", one.floor.seconds), ("level", one.floor.level.value))


def _apart(slices: Iterable[Slice]) -> Iterator[Slice]:
    """A stream does one thing after the other; where a recording says otherwise, a slice ends where the next begins."""
    ordered = list(slices)
    for one, follower in pairwise(ordered):
        yield Slice(one.name, one.start_s, min(one.seconds, max(0.0, follower.start_s - one.start_s)), one.notes)
    yield from ordered[-1:]


def _attained(kernels: Sequence[Attributed]) -> Iterator[Level]:
    """Of each kernel's time, the fraction that its work needs at the ceilings; of a kernel without a floor nothing."""
    for one in kernels:
        if one.parts is not None and one.seconds > 0:
            yield Level(one.kernel.start_s, one.parts.attained / one.seconds)
            yield Level(one.kernel.start_s + one.kernel.seconds, 0.0)
