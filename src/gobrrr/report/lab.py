"""The lab as a page: what was asked, what it looks like, what became of each claim; and the claims as a table."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.lab.claim import Claim, Verdict
from gobrrr.lab.result import Column, Drawing, Lab, Result, is_number
from gobrrr.report import curve
from gobrrr.report.diagnosis import bar

NEXT = "gobrrr examine FILE.py:NAME"
WIDTH = 120
"""Of the text that is kept."""

LEAST = 1e-30
"""Of what has a place on a logarithmic axis."""

STYLES = {Verdict.HOLDS: "green", Verdict.IN_PART: "yellow", Verdict.FAILS: "red", Verdict.UNTESTABLE: "dim"}

SEVERAL = {
    Verdict.HOLDS: "hold",
    Verdict.IN_PART: "hold in part",
    Verdict.FAILS: "do not hold here",
    Verdict.UNTESTABLE: "not testable here",
}
"""Verdicts, of more than one claim."""

TEXTS: Mapping[str, Callable[[Any], str]] = {
    "s": units.seconds,
    "FLOP/s": units.flops_per_s,
    "B/s": units.bytes_per_s,
    "B": units.moved,
    "FLOP/B": units.per_byte,
    "%": lambda value: units.percent(value, 1 if value is None or 0.01 <= value < 0.995 else 2),
    "": units.count,
    "text": lambda value: units.UNKNOWN if value is None else str(value),
}


def text(lab: Lab) -> str:
    """The page as it would be printed."""
    file = io.StringIO()
    Console(file=file, width=WIDTH, highlight=False).print(render(lab))
    return file.getvalue()


def render(lab: Lab) -> RenderableType:
    return Group(
        Text.assemble(("gobrrr lab ", "bold"), f"· {lab.device} · torch {lab.torch} · {lab.threads} threads"),
        *(part for result in lab.experiments for part in _experiment(result)),
        "",
        *(Text(f"doubt: {doubt}", style="yellow") for doubt in lab.doubts),
        Text(tally(lab), style="bold"),
        Text(f"next: {NEXT}", style="bold"),
    )


def tally(lab: Lab) -> str:
    """How many claims came out how."""
    verdicts = [claim.verdict for claim in claims(lab)]
    numbers = {one: verdicts.count(one) for one in Verdict if one in verdicts}
    counted = ", ".join(f"{number} {one.value if number == 1 else SEVERAL[one]}" for one, number in numbers.items())
    return f"{len(verdicts)} claims: {counted}"


def claims(lab: Lab) -> list[Claim]:
    return [claim for result in lab.experiments for claim in result.claims]


def markdown(lab: Lab) -> str:
    """All claims in one table, for a document."""
    rows = [
        f"| {one.id} | {one.claimed} | {one.measured or units.UNKNOWN} | {one.verdict.value} | {one.why} |"
        for one in sorted(claims(lab), key=lambda claim: claim.id)
    ]
    head = f"{lab.device}, torch {lab.torch}, {lab.made_at[:10]}: {tally(lab)}."
    head += "".join(f" Doubt: {doubt}." for doubt in lab.doubts)
    return "\n".join([head, "", "| | claimed | measured | verdict | why |", "|---|---|---|---|---|", *rows]) + "\n"


def _experiment(result: Result) -> Iterator[RenderableType]:
    yield ""
    yield Text.assemble((result.name, "bold underline"), f"  {result.question}  ({units.seconds(result.seconds, 2)})")
    for drawing in result.drawings:
        yield ""
        yield from _drawn(drawing, list(shown(drawing, result.points)))
    yield ""
    for claim in result.claims:
        yield from _claim(claim)


def shown(drawing: Drawing, points: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The points that have what it draws, and are of the kind that it asks for."""
    for point in points:
        wanted = all(point.get(field) == value for field, value in (drawing.only or {}).items())
        if wanted and drawing.x.field in point and drawing.y.field in point and _is_drawable(drawing, point):
            yield point


def _is_drawable(drawing: Drawing, point: Mapping[str, Any]) -> bool:
    """A bar may be unknown, and then has no length."""
    x, y = point[drawing.x.field], point[drawing.y.field]
    return _has_a_place(x) and _has_a_place(y) if drawing.kind == "curve" else y is None or is_number(y)


def _has_a_place(value: Any) -> bool:
    """On a logarithmic axis."""
    return is_number(value) and value > LEAST


def _drawn(drawing: Drawing, points: list[Mapping[str, Any]]) -> Iterator[RenderableType]:
    yield Text(drawing.title, style="bold")
    if drawing.kind == "bars":
        yield _bars(drawing, points)
        return
    places = [(float(point[drawing.x.field]), float(point[drawing.y.field])) for point in points]
    marks = {name: place for name, place in (drawing.marks or {}).items() if _has_a_place(place)}
    for line in curve.draw(places, TEXTS[drawing.x.unit], TEXTS[drawing.y.unit], marks):
        yield Text(line)


def _bars(drawing: Drawing, points: list[Mapping[str, Any]]) -> Table:
    """As long as the value is of the largest; a share is as long as it is of all."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    table.add_column(Text(drawing.x.title), justify="right" if drawing.x.unit == "" else "left", overflow="fold")
    table.add_column("")
    for column in (drawing.y, *drawing.beside):
        table.add_column(Text(column.title), justify="left" if column.unit == "text" else "right", overflow="fold")
    values = [point[drawing.y.field] or 0.0 for point in points]
    whole = 1.0 if drawing.y.unit == "%" else max(values, default=0.0) or 1.0
    for point, value in zip(points, values, strict=True):
        texts = [Text(_said(point, column)) for column in (drawing.y, *drawing.beside)]
        table.add_row(Text(_said(point, drawing.x)), bar(value / whole), *texts)
    return table


def _said(point: Mapping[str, Any], column: Column) -> str:
    value = point.get(column.field)
    return TEXTS[column.unit](value if column.unit == "text" or is_number(value) else None)


def _claim(claim: Claim) -> Iterator[RenderableType]:
    style = STYLES[claim.verdict]
    yield Text.assemble((f"{claim.id} ", "bold"), (claim.verdict.value, f"bold {style}"), f"  {claim.claimed}")
    if claim.measured is not None:
        yield Padding(Text(f"here: {claim.measured}"), (0, 0, 0, 4), expand=False)
    yield Padding(Text(f"why: {claim.why}"), (0, 0, 0, 4), expand=False)
