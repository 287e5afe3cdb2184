"""The roofline as text: attainable FLOP/s over FLOPs per byte, both axes logarithmic.

Under a slope of W bytes/s a program with x FLOPs per byte reaches at most x·W; under a roof of P FLOP/s at
most P. Where the two meet, at P/W, lies the ridge: left of it more bandwidth would help, right of it only
more arithmetic.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from textwrap import wrap

from gobrrr import units


@dataclass(frozen=True, slots=True)
class Line:
    """A slope in bytes/s or a roof in FLOP/s."""

    label: str
    per_s: float


@dataclass(frozen=True, slots=True)
class Roofline:
    slopes: tuple[Line, ...]
    """The memory that everything comes from first; faster levels after it."""
    roofs: tuple[Line, ...]
    ridges: Mapping[str, float] = field(default_factory=dict)
    """FLOPs per byte of memory, by roof."""


@dataclass(frozen=True, slots=True)
class Glyphs:
    roof: str
    """Reached from memory."""
    dotted_roof: str
    """Reached only from the faster levels."""
    ridge: str
    axis: str
    corner: str
    base: str
    tick: str
    down_tick: str
    between: str
    slopes: tuple[str, ...] | None = None
    """Of memory and of faster levels; None draws them in dots, eight to a character."""


UNICODE = Glyphs("─", "╌", "●", "│", "└", "─", "┤", "┬", "·")
ASCII = Glyphs("-", ".", "o", "|", "+", "-", "+", "+", "|", slopes=("/", "'"))

_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
"""Bits of a braille character by row and column of its dots."""


def draw(roofline: Roofline, width: int, glyphs: Glyphs = UNICODE) -> list[str]:
    """Lines of at most `width` characters; none where there is no slope or no roof to draw."""
    if not roofline.slopes or not roofline.roofs:
        return []
    canvas = _Canvas.around(roofline, width, glyphs)
    for number, slope in reversed(list(enumerate(roofline.slopes))):
        canvas.slope(slope.per_s, None if glyphs.slopes is None else glyphs.slopes[min(number, 1)])
    for roof in roofline.roofs:
        canvas.roof(roof.per_s, roofline.slopes)
    for number, slope in enumerate(roofline.slopes):
        canvas.name_slope(slope, below=number == 0)
    lines = [*canvas.rows(roofline.roofs), *canvas.x_axis(), *_ridge_lines(roofline.ridges, width, glyphs)]
    return [line[:width] for line in lines]


def _ridge_lines(ridges: Mapping[str, float], width: int, glyphs: Glyphs) -> list[str]:
    if not ridges:
        return []
    parts = [
        f"{label} {units.significant(value)}".replace(" ", "\N{NO-BREAK SPACE}") for label, value in ridges.items()
    ]
    text = f"{glyphs.ridge} ridge, FLOP/B: " + f" {glyphs.between} ".join(parts)
    lines = wrap(text, width - _LEFT - 1, subsequent_indent="  ")
    return [" " * (_LEFT + 1) + line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


@dataclass(slots=True)
class _Canvas:
    """Character cells over a window of the plane, addressed by intensity and rate."""

    glyphs: Glyphs
    columns: int
    height: int
    x_low: float
    x_high: float
    y_low: float
    y_high: float
    cells: list[list[str]]

    @classmethod
    def around(cls, roofline: Roofline, width: int, glyphs: Glyphs) -> "_Canvas":
        """The window: from an eighth of the first ridge to eight times the last, roofs below the top edge."""
        roofs = [roof.per_s for roof in roofline.roofs]
        slopes = [slope.per_s for slope in roofline.slopes]
        x_low, x_high = min(roofs) / max(slopes) / 8, max(roofs) / min(slopes) * 8
        gutter = max(len(_X_UNIT), *(len(label) for label in _row_labels_at_worst(roofline.roofs)))
        columns = max(24, width - _LEFT - 2 - min(gutter, width // 3))
        height = 12 if width < 100 else 16
        return cls(
            glyphs=glyphs,
            columns=columns,
            height=height,
            x_low=x_low,
            x_high=x_high,
            y_low=x_low * min(slopes),
            y_high=max(roofs) * 1.5,
            cells=[[" "] * columns for _ in range(height)],
        )

    def column(self, x: float) -> float:
        return (self.columns - 1) * math.log(x / self.x_low) / math.log(self.x_high / self.x_low)

    def row(self, y: float) -> float:
        """From the top."""
        return (self.height - 1) * math.log(self.y_high / y) / math.log(self.y_high / self.y_low)

    def x_at(self, column: float) -> float:
        return self.x_low * math.pow(self.x_high / self.x_low, column / (self.columns - 1))

    def y_at(self, row: float) -> float:
        return self.y_high / math.pow(self.y_high / self.y_low, row / (self.height - 1))

    def slope(self, bytes_per_s: float, mark: str | None) -> None:
        """Up to the top edge, in one mark a character or in dots."""
        across, down = (2, 4) if mark is None else (1, 1)
        for dot in range(self.columns * across):
            depth = self.row(self.x_at((dot + 0.5) / across - 0.5) * bytes_per_s)
            height = math.floor((depth + 0.5) * down)
            if 0 <= height < self.height * down:
                column, row = dot // across, height // down
                self.cells[row][column] = mark or _with_dot(self.cells[row][column], height % down, dot % across)

    def roof(self, flops_per_s: float, slopes: tuple[Line, ...]) -> None:
        """From the fastest level's slope to the right edge, dotted until memory can feed it, with its ridge."""
        row = round(self.row(flops_per_s))
        start = math.ceil(self.column(flops_per_s / max(slope.per_s for slope in slopes)))
        ridge = round(self.column(flops_per_s / slopes[0].per_s))
        for column in range(max(0, start), self.columns):
            self.cells[row][column] = self.glyphs.dotted_roof if column < ridge else self.glyphs.roof
        if 0 <= ridge < self.columns:
            self.cells[row][ridge] = self.glyphs.ridge

    def name_slope(self, slope: Line, *, below: bool) -> None:
        """Memory's name stands right of its slope near the foot, a faster level's left of it higher up."""
        text = f"{slope.label} {units.bytes_per_s(slope.per_s)}"
        best = self.height - 3 if below else self.height // 3
        for row in sorted(range(self.height), key=lambda row: abs(row - best)):
            right = math.ceil(self.column(self.y_at(row - 0.5) / slope.per_s)) + 2
            left = math.floor(self.column(self.y_at(row + 0.5) / slope.per_s)) - 1
            if self._write(text, row, right if below else left - len(text)):
                return

    def _write(self, text: str, row: int, start: int) -> bool:
        """Only where it covers nothing."""
        if start < 0 or start + len(text) > self.columns:
            return False
        if any(cell != " " for cell in self.cells[row][start : start + len(text)]):
            return False
        self.cells[row][start : start + len(text)] = text
        return True

    def rows(self, roofs: tuple[Line, ...]) -> Iterator[str]:
        labels = _row_labels({roof.label: round(self.row(roof.per_s)) for roof in roofs})
        ticks = {round(self.row(decade)): units.flops_per_s(decade, 1) for decade in decades(self.y_low, self.y_high)}
        for number, cells in enumerate(self.cells):
            edge = self.glyphs.tick if number in ticks else self.glyphs.axis
            yield f"{ticks.get(number, ''):>{_LEFT - 1}} {edge}{''.join(cells)} {labels.get(number, '')}".rstrip()

    def x_axis(self) -> Iterator[str]:
        line, names = [self.glyphs.base] * self.columns, [" "] * self.columns
        for decade in decades(self.x_low, self.x_high):
            column, text = round(self.column(decade)), f"{decade:g}"
            line[column] = self.glyphs.down_tick
            start = min(max(0, column - len(text) // 2), self.columns - len(text))
            names[start : start + len(text)] = text
        yield " " * _LEFT + self.glyphs.corner + "".join(line)
        yield " " * (_LEFT + 1) + "".join(names).rstrip() + f" {_X_UNIT}"


def _with_dot(cell: str, row: int, column: int) -> str:
    bits = ord(cell) - 0x2800 if cell >= "\u2800" else 0
    return chr(0x2800 + (bits | _DOTS[row][column]))


_LEFT = 12
"""Columns for the names of rates and a space."""

_X_UNIT = "FLOP/B"


def decades(low: float, high: float) -> list[float]:
    return [10.0**power for power in range(math.ceil(math.log10(low)), math.floor(math.log10(high)) + 1)]


def _row_labels(rows: dict[str, int]) -> dict[int, str]:
    """Roofs too close to tell apart share a label."""
    labels: dict[int, str] = {}
    for label, row in rows.items():
        labels[row] = f"{labels[row]}, {label}" if row in labels else label
    return labels


def _row_labels_at_worst(roofs: tuple[Line, ...]) -> list[str]:
    """Roofs within a factor of 1.5 may end up in one row."""
    groups: dict[int, list[str]] = {}
    for roof in roofs:
        groups.setdefault(round(math.log(roof.per_s, 1.5)), []).append(roof.label)
    return [", ".join(group) for group in groups.values()]
