"""The terminal view of what treating a step found."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.treat.outcome import Kept, Treated
from gobrrr.treat.treatment import Treatment

BAR = 30
"""Characters of the longest bar."""


def render(found: Treated, following: str) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble(("gobrrr treat ", "bold"), f"{found.target} · {found.machine}"),
        "",
        Text(_verdict(found), style="bold"),
        "",
        _waterfall(found),
    ]
    parts += _section("kept", (_kept_line(one) for one in found.kept))
    parts += _section("rejected", (f"{one.treatment}: {one.reason}{_measured(one.measured)}" for one in found.rejected))
    parts += _section("not tried", (f"{one.treatment}: {one.reason}{_bound(one.bound)}" for one in found.not_tried))
    parts += _section("doubts", found.warnings)
    parts += _section("by hand", (line for one in found.kept for line in one.by_hand.splitlines()))
    return Group(*parts, "", Text(f"next: {following}", style="bold"))


def _verdict(found: Treated) -> str:
    spent = f"found in {units.seconds(found.spent_s, 2)}"
    if not found.kept:
        return f"Nothing that was tried makes this step faster ({units.seconds(found.baseline_s)}); {spent}."
    return (
        f"{units.seconds(found.baseline_s)} → {units.seconds(found.treated_s)}: {found.speedup:.2f}x "
        f"({found.speedup_low:.2f} to {found.speedup_high:.2f}), predicted {found.predicted_speedup:.2f}x; {spent}."
    )


def _waterfall(found: Treated) -> Table:
    """From now to the floor: each treatment's step, predicted beside measured."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("step")
    for column in ("time", "predicted", "measured"):
        table.add_column(column, justify="right")
    table.add_column("")
    table.add_row("as it is", units.seconds(found.baseline_s), "", "", _bar(found.baseline_s, found))
    for one in found.kept:
        measured = f"{one.measured:.2f}x ({one.low:.2f} to {one.high:.2f})"
        bar = _bar(one.step_s, found)
        table.add_row(f"+ {one.treatment}", units.seconds(one.step_s), f"{one.predicted:.2f}x", measured, bar)
    for name, floor_s in (("fused floor", found.fused_floor_s), ("compulsory floor", found.compulsory_floor_s)):
        if floor_s is not None:
            table.add_row(name, units.seconds(floor_s), "", "", _bar(floor_s, found))
    return table


def _bar(step_s: float, found: Treated) -> str:
    longest_s = max(found.baseline_s, *(one.step_s for one in found.kept), 0.0)
    return "█" * max(1, round(BAR * step_s / longest_s)) if longest_s else ""


def _kept_line(one: Kept) -> str:
    paid = "" if one.break_even_steps is None else f", paid back after {units.count(one.break_even_steps, 2)} steps"
    cost = f"; first step {units.seconds(one.compile_s, 2)}{paid}" if one.compile_s > 1 else ""
    memory = "" if one.memory_bytes is None else f"; memory {units.capacity(one.memory_bytes)}"
    error = "" if one.numerics.worst_error is None else f", error at most {one.numerics.worst_error:.1e}"
    return f"{one.treatment}: {one.numerics.cls}{error}{cost}{memory}"


def _measured(ratio: float | None) -> str:
    return "" if ratio is None else f" ({ratio:.2f}x)"


def _bound(ratio: float | None) -> str:
    return "" if ratio is None else f" (at most {ratio:.2f}x)"


def _section(title: str, lines: Iterable[str]) -> list[RenderableType]:
    shown = [Text(f"  {line}") for line in lines]
    return ["", Text(title, style="bold"), *shown] if shown else []


def render_list(treatments: Iterable[Treatment]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("treatment", "what", "numbers", "allowed by"):
        table.add_column(column, overflow="fold")
    for one in treatments:
        table.add_row(one.name, one.title, one.numerics.value, "" if one.allow is None else f"--allow {one.allow}")
    return table
