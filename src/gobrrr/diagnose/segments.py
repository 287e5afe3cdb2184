"""Segments: what is known about each stretch of a storage. Later knowledge covers earlier."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class Segments(Generic[T]):
    """Disjoint stretches of one storage, each with a note.

    Almost every storage is read and written whole and has one segment; a flat buffer of parameters or a gradient
    bucket has one for each view. Both are found by bisection, so that a walk over n operands stays near n.
    """

    __slots__ = ("_notes", "_starts", "_stops")

    def __init__(self) -> None:
        self._starts: list[float] = []
        self._stops: list[float] = []
        self._notes: list[T] = []

    def __getitem__(self, stretch: tuple[float, float]) -> Iterator[tuple[float, T | None]]:
        """The lengths and notes that make up a stretch; None where nothing has been noted."""
        start, stop = stretch
        at = start
        for index in range(*self._overlapping(start, stop)):
            low, high = max(start, self._starts[index]), min(stop, self._stops[index])
            if low > at:
                yield low - at, None
            yield high - low, self._notes[index]
            at = high
        if stop > at:
            yield stop - at, None

    def __setitem__(self, stretch: tuple[float, float], note: T) -> None:
        """Notes it over the whole stretch; what sticks out of it on either side keeps its own."""
        start, stop = stretch
        first, last = self._overlapping(start, stop)
        if last - first == 1 and self._starts[first] == start and self._stops[first] == stop:
            self._notes[first] = note
            return
        parts = [(start, stop, note)]
        if first < last and self._starts[first] < start:
            parts.insert(0, (self._starts[first], start, self._notes[first]))
        if first < last and self._stops[last - 1] > stop:
            parts.append((stop, self._stops[last - 1], self._notes[last - 1]))
        self._starts[first:last] = [part[0] for part in parts]
        self._stops[first:last] = [part[1] for part in parts]
        self._notes[first:last] = [part[2] for part in parts]

    def notes(self) -> Iterator[T]:
        return iter(self._notes)

    def _overlapping(self, start: float, stop: float) -> tuple[int, int]:
        """Indices of the first segment that reaches into the stretch, and of the first one behind it."""
        first = bisect_right(self._stops, start)
        return first, max(first, bisect_left(self._starts, stop))
