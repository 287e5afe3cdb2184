"""The terminal view of what treating a step found."""

from collections.abc import Iterable, Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.report.waterfall import UNKNOWN_ADVICE, AdviceLine, LeftLine, TreatmentView, treatment_view
from gobrrr.treat.outcome import Treated
from gobrrr.treat.treatment import Treatment

BAR = 16
"""Characters of the longest bar."""


def render(found: Treated, following: str) -> RenderableType:
    view = treatment_view(found)
    parts: list[RenderableType] = [
        Text.assemble(("gobrrr treat ", "bold"), f"{view.target} · {view.machine}"),
        "",
        Text(f"{view.verdict}.", style="bold"),
        *([] if view.memory is None else [Text(f"{view.memory}.")]),
        "",
        _waterfall(view),
    ]
    parts += _section("kept", (f"{one.name}: {'; '.join(filter(None, (one.numerics, one.cost)))}" for one in view.kept))
    parts += _section("rejected", map(_rejected, view.rejected))
    parts += _section("not tried", map(_not_tried, view.not_tried))
    parts += _section("left to you", _left(view.advice))
    parts += _section("doubts", view.doubts)
    parts += _section("by hand", (line for one in view.kept for line in one.by_hand.splitlines()), wraps=False)
    return Group(*parts, "", Text(f"next: {following}", style="bold"))


def _waterfall(view: TreatmentView) -> Table:
    """From now to the floor: each treatment's step, predicted beside measured."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("step", no_wrap=True, overflow="fold", min_width=max(len(level.name) for level in view.levels))
    for column in ("time", "predicted", "measured"):
        table.add_column(column, justify="right")
    table.add_column("", no_wrap=True, overflow="crop")
    kept = {one.name: one for one in view.kept}
    longest_s = max(level.to_s for level in view.levels)
    for level in view.levels:
        one = kept.get(level.name) if level.kind == "kept" else None
        ratios = (
            ("", "") if one is None else (units.times(one.predicted), f"{units.times(one.measured)} ({one.interval})")
        )
        table.add_row(level.name, units.seconds(level.to_s), *ratios, "█" * max(1, round(BAR * level.to_s / longest_s)))
    return table


def _rejected(one: LeftLine) -> str:
    measured = "" if one.ratio is None else f", measured {units.times(one.ratio)}"
    return f"{one.name}: {one.reason} (predicted {units.times(one.predicted)}{measured})"


def _not_tried(one: LeftLine) -> str:
    return f"{one.name}: {one.reason}" + ("" if one.ratio is None else f" (at most {units.times(one.ratio)})")


def _left(advice: tuple[AdviceLine, ...] | None) -> list[str]:
    return [UNKNOWN_ADVICE] if advice is None else [line for one in advice for line in _advised(one)]


def _advised(one: AdviceLine) -> Iterator[str]:
    yield f"{one.title}: {one.treatment}"
    yield from (f"  {line}" for line in one.evidence)


def _section(title: str, lines: Iterable[str], *, wraps: bool = True) -> list[RenderableType]:
    """Code does not: it would be another."""
    shown = [Text(f"  {line}", no_wrap=not wraps, overflow=None if wraps else "ignore") for line in lines]
    return ["", Text(title, style="bold"), *shown] if shown else []


def render_list(treatments: Iterable[Treatment]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("treatment", "what", "numbers", "allowed by"):
        table.add_column(column, overflow="fold")
    for one in treatments:
        table.add_row(one.name, one.title, one.numerics.value, "" if one.allow is None else f"--allow {one.allow}")
    return table
