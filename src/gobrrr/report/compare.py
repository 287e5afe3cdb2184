"""The terminal view of a Comparison."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.diagnose.compare import Comparison, OpChange, Pair

TOP_OPS = 12


def render(comparison: Comparison, next_command: str) -> RenderableType:
    return Group(
        Text.assemble(("gobrrr ", "bold"), f"· {comparison.before.target} → {comparison.after.target}"),
        Text(f"  {verdict(comparison)}", style="bold"),
        "",
        _where(comparison),
        *(Text(line) for line in _idle(comparison)),
        "",
        _ops(comparison),
        "",
        Text(f"next: {next_command}", style="bold"),
    )


def verdict(comparison: Comparison) -> str:
    """One sentence: how the steps compare, and whether another regime leads."""
    before, after = comparison.before, comparison.after
    turned = f"{before.regime} → {after.regime}" if before.regime != after.regime else f"both {before.regime}"
    if comparison.speedup is None:
        return f"different machines, {before.machine} and {after.machine}: fractions of their ceilings; {turned}"
    word = "faster" if comparison.speedup >= 1 else "slower"
    factor = max(comparison.speedup, 1 / comparison.speedup)
    return (
        f"{units.seconds(before.step_s)} → {units.seconds(after.step_s)}, {units.times(factor)} {word}; {turned}; "
        f"idle {units.seconds(before.idle_s)} → {units.seconds(after.idle_s)}"
    )


def _where(comparison: Comparison) -> Table:
    table = _table("where the time goes", "before", "after", "", "")
    for name, pair in comparison.seconds.items():
        if any((pair.before, pair.after)):
            seconds = [units.seconds(one) if comparison.same_machine else "" for one in (pair.before, pair.after)]
            share = comparison.shares[name]
            table.add_row(name, *seconds, units.percent(share.before, 0), units.percent(share.after, 0))
    return table


def _idle(comparison: Comparison) -> Iterator[str]:
    """Of causes that are there at all; the one that changed most leads."""
    if comparison.same_machine and comparison.idle_causes_s:
        parts = (
            f"{cause.replace('_', ' ')} {units.seconds(pair.before)} → {units.seconds(pair.after)}"
            for cause, pair in comparison.idle_causes_s.items()
        )
        yield f"idle: {', '.join(parts)}"


def _ops(comparison: Comparison) -> Table:
    table = _table("ops that changed", "", "before", "after", "of floor", "", "regime")
    table.columns[1].justify = table.columns[6].justify = "left"
    for one in comparison.ops[:TOP_OPS]:
        seconds = one.seconds or Pair(None, None)
        table.add_row(
            Text(one.name),
            one.change,
            units.seconds(seconds.before),
            units.seconds(seconds.after),
            units.percent(one.of_ceiling.before, 0),
            units.percent(one.of_ceiling.after, 0),
            _regimes(one),
        )
    return table


def _regimes(one: OpChange) -> str:
    before, after = one.regimes
    return f"{before} → {after}" if before and after and before != after else before or after or ""


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table
