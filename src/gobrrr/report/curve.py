"""A curve as text: points over two logarithmic axes, joined by dots, with named places on the lower one."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

WIDTH = 56
HEIGHT = 10
_LEFT = 10
"""Columns for the names of values and a space."""

Text = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class _Axis:
    low: float
    high: float
    cells: int

    def cell(self, value: float) -> int:
        """Of the first cell `low`, of the last `high`."""
        return round((self.cells - 1) * math.log(value / self.low) / (math.log(self.high / self.low) or 1))


def draw(
    points: Sequence[tuple[float, float]], x_text: Text, y_text: Text, marks: Mapping[str, float] | None = None
) -> list[str]:
    """Lines of text; none where there are no two points to join."""
    if len(points) < 2:
        return []
    marks = marks or {}
    xs, ys = [x for x, _ in points] + list(marks.values()), [y for _, y in points]
    x_axis, y_axis = _Axis(min(xs), max(xs), WIDTH), _Axis(min(ys), max(ys), HEIGHT)
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    for place in marks.values():
        for row in cells:
            row[x_axis.cell(place)] = "┊"
    for (x, y), (x_next, y_next) in pairwise(points):
        _join(cells, (x_axis.cell(x), y_axis.cell(y)), (x_axis.cell(x_next), y_axis.cell(y_next)))
    for x, y in points:
        cells[HEIGHT - 1 - y_axis.cell(y)][x_axis.cell(x)] = "●"
    labels = {0: y_text(max(ys)), HEIGHT - 1: y_text(min(ys))}
    lines = [f"{labels.get(number, ''):>{_LEFT - 1}} │{''.join(row)}".rstrip() for number, row in enumerate(cells)]
    return [*lines, " " * _LEFT + "└" + "─" * WIDTH, *_below(points, x_axis, x_text, marks)]


def _join(cells: list[list[str]], start: tuple[int, int], stop: tuple[int, int]) -> None:
    """A dot in every column between two points."""
    (column, row), (last_column, last_row) = start, stop
    for between in range(column + 1, last_column):
        height = round(row + (last_row - row) * (between - column) / (last_column - column))
        cells[HEIGHT - 1 - height][between] = "·"


def _below(points: Sequence[tuple[float, float]], axis: _Axis, text: Text, marks: Mapping[str, float]) -> list[str]:
    """The values of the points, then the names of the marks with theirs."""
    named = [(place, f"{name} {text(place)}") for name, place in sorted(marks.items(), key=lambda item: item[1])]
    rows = [_names([(x, text(x)) for x, _ in points], axis), *(_names([one], axis) for one in named)]
    return [" " * (_LEFT + 1) + row for row in rows]


def _names(places: Sequence[tuple[float, str]], axis: _Axis) -> str:
    """Each centred under its place where there is room, else left out."""
    line = ""
    for value, name in places:
        start = max(0, min(axis.cell(value) - len(name) // 2, axis.cells - len(name)))
        if start > len(line) or not line:
            line = line.ljust(start) + name
    return line
