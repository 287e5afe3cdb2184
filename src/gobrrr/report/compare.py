"""The terminal view of a Comparison."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.diagnose.compare import Comparison, OpChange, Pair

TOP_OPS = 12
_SHARES = ("before", "after")


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
    """Between different machines shares alone."""
    table = _table("where the time goes", *(("before", "after", "", "") if comparison.same_machine else _SHARES))
    for name, pair in comparison.seconds.items():
        if any((pair.before, pair.after)):
            shares = comparison.shares[name]
            percents = [units.percent(one, 0) for one in (shares.before, shares.after)]
            table.add_row(name, *_both(comparison, pair), *percents)
    return table


def _both(comparison: Comparison, pair: Pair | None) -> list[str]:
    """Seconds before and after, where they can be compared."""
    if not comparison.same_machine:
        return []
    return [units.seconds(one) for one in ((None, None) if pair is None else (pair.before, pair.after))]


def _idle(comparison: Comparison) -> Iterator[str]:
    """Of causes that are there at all; the one that changed most leads."""
    if comparison.same_machine and comparison.idle_causes_s:
        parts = (
            f"{cause.replace('_', ' ')} {units.seconds(pair.before)} → {units.seconds(pair.after)}"
            for cause, pair in comparison.idle_causes_s.items()
        )
        yield f"idle: {', '.join(parts)}"


def _ops(comparison: Comparison) -> Table:
    seconds = ("before", "after") if comparison.same_machine else ()
    table = _table("ops that changed", "", *seconds, "of floor", "", "regime")
    table.columns[1].justify = table.columns[-1].justify = "left"
    for column in table.columns[1:]:
        column.no_wrap = True
    for one in comparison.ops[:TOP_OPS]:
        table.add_row(
            Text(one.name, no_wrap=True, overflow="ellipsis"),
            one.change,
            *_both(comparison, one.seconds),
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
