"""The terminal view of a Diagnosis: the verdict first, then where the time goes."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.diagnose.diagnosis import Diagnosis, OpRow
from gobrrr.diagnose.findings import nothing_to_gain
from gobrrr.work.registry import canonical
from gobrrr.work.tally import alike

TOP_OPS = 10
MOST_EVIDENCE = 4
MOST_NAMES = 3
BAR_WIDTH = 24

_BLOCKS = " ▏▎▍▌▋▊▉█"
_SEEN = {
    "windows": "steps without a profiler",
    "replayed": "recorded steps without what recording cost",
}
_HALF = 0.5
"""If less of the leading regime is attained, the verdict says so: the units are occupied, not used."""


def render(diagnosis: Diagnosis, next_command: str) -> RenderableType:
    return Group(
        Text.assemble(("gobrrr ", "bold"), f"· {diagnosis.machine.name} · {diagnosis.target}"),
        Text(_step(diagnosis)),
        Text(verdict(diagnosis), style="bold"),
        "",
        _where(diagnosis),
        "",
        _classes(diagnosis),
        "",
        _ops(diagnosis),
        "",
        *_findings(diagnosis),
        "",
        *(Text(line) for line in _sureness(diagnosis)),
        Text(f"next: {next_command}", style="bold"),
    )


def verdict(diagnosis: Diagnosis) -> str:
    """One sentence: regime, limiter, and the fraction of the fused floor."""
    return f"{_regime(diagnosis)}; {_limiter(diagnosis)}; {_of_floor(diagnosis)}"


def _step(diagnosis: Diagnosis) -> str:
    interval = f"{units.seconds(diagnosis.step_s_low)} to {units.seconds(diagnosis.step_s_high)}"
    seen = _SEEN.get(diagnosis.step_s_method, "recorded steps")
    return f"  step {units.seconds(diagnosis.step_s)} ({interval}, {diagnosis.steps} {seen})"


def _regime(diagnosis: Diagnosis) -> str:
    if diagnosis.shares is None or diagnosis.regime in ("mixed", "unknown"):
        return f"regime {diagnosis.regime}"
    share = f"{diagnosis.regime} {units.percent(diagnosis.shares[diagnosis.regime], 0)}"
    attained = diagnosis.attained_s.get(diagnosis.regime)
    whole = diagnosis.seconds[diagnosis.regime]
    if attained is None or not whole or attained / whole >= _HALF:
        return share
    return f"{share}, {units.percent(attained / whole, 0)} of it attained"


def _limiter(diagnosis: Diagnosis) -> str:
    return {
        "host": "the host limits",
        "device": "the device limits",
        "balanced": "host and device are both full",
        "mixed": "neither host nor device is full",
    }.get(diagnosis.limiter, "what limits is unknown")


def _of_floor(diagnosis: Diagnosis) -> str:
    if diagnosis.fraction_of_floor is None:
        return "its floor is unknown"
    fraction = units.percent(diagnosis.fraction_of_floor, 0)
    return f"you are at {fraction} of what this machine can do (fused floor {units.seconds(diagnosis.fused_floor_s)})"


def _where(diagnosis: Diagnosis) -> Table:
    table = _table("where the time goes", "", "", "", "")
    for name, seconds in diagnosis.seconds.items():
        if seconds > 0:
            share = seconds / diagnosis.step_s
            table.add_row(name, bar(share), units.seconds(seconds), units.percent(share, 0), _note(diagnosis, name))
    table.columns[1].justify = table.columns[4].justify = "left"
    return table


def _note(diagnosis: Diagnosis, regime: str) -> str:
    if regime == "overhead":
        return f"{units.seconds(diagnosis.idle_s)} idle, {units.seconds(diagnosis.latency_s)} latency"
    attained, inefficient = diagnosis.attained_s.get(regime), diagnosis.inefficient_s.get(regime)
    if attained is None or inefficient is None:
        return ""
    return f"{units.seconds(attained)} attained, {units.seconds(inefficient)} inefficient"


def bar(share: float) -> str:
    """Eighths of a block: a share of 1 is as wide as the bar may be."""
    eighths = round(max(0.0, min(1.0, share)) * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _classes(diagnosis: Diagnosis) -> Table:
    table = _table("class", "time", "", "FLOPs", "FLOP/s", "bytes", "B/s")
    for name, row in diagnosis.classes.items():
        table.add_row(
            name,
            units.seconds(row.seconds),
            units.percent(row.share, 0),
            units.flops(row.flops),
            units.flops_per_s(row.flops / row.seconds if row.seconds else None),
            units.moved(row.bytes),
            units.bytes_per_s(row.bytes / row.seconds if row.seconds else None),
        )
    return table


def _ops(diagnosis: Diagnosis) -> Table:
    table = _table("longest ops", "time", "", "of floor", "regime", "calls", "where")
    table.columns[4].justify = table.columns[6].justify = "left"
    for row in diagnosis.ops[:TOP_OPS]:
        table.add_row(
            Text(_op_name(row)),
            units.seconds(row.seconds),
            units.percent(row.seconds / diagnosis.step_s, 0),
            units.percent(row.floor_s / row.seconds if row.floor_s is not None and row.seconds else None, 0),
            row.regime,
            str(row.calls),
            Text(f"{row.phase} {row.source or alike(row.module)}"),
        )
    return table


def _op_name(row: OpRow) -> str:
    """By the ops of the program that it does, the first few of them."""
    names = [canonical(name) for name in row.fused_from or ()]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*names[:MOST_NAMES], *more]) or row.name


def _findings(diagnosis: Diagnosis) -> Iterator[Text]:
    """Each with what is at stake, what was seen and what to do; or that there is nothing to gain."""
    for found in diagnosis.findings:
        stake = (
            f"{units.seconds(found.seconds_at_stake)} of the step, {units.seconds(found.device_seconds)} of the device"
        )
        yield Text.assemble((f"{found.code} {found.title}", "bold"), f"  {stake} at stake")
        for line in found.evidence[:MOST_EVIDENCE]:
            yield Text(f"     {line}")
        yield Text(f"     → {found.treatment}")
    sentence = nothing_to_gain(diagnosis.findings, diagnosis.step_s)
    if sentence is not None:
        yield Text(sentence)


def _sureness(diagnosis: Diagnosis) -> Iterator[str]:
    yield (
        f"counted by formula {units.percent(diagnosis.coverage['formula'], 0)} of busy time; floors: compulsory "
        f"{units.seconds(diagnosis.compulsory_floor_s)}, fused {units.seconds(diagnosis.fused_floor_s)}, as run "
        f"{units.seconds(diagnosis.as_run_floor_s)}; under the profiler the step took "
        f"{units.seconds(diagnosis.step_profiled_s)}"
    )
    if recorded := _recorded(diagnosis):
        yield f"of busy time, {recorded}; ceilings: {diagnosis.machine.ceilings_from}"
    if diagnosis.busy_scale > 1.05:
        yield f"doubt: the device was busy for {units.times(diagnosis.busy_scale)} of the step; times were scaled down"
    for warning in diagnosis.quality.warnings:
        yield f"doubt: {warning}"


def _recorded(diagnosis: Diagnosis) -> str:
    """How much of a trace could be used; nothing of a live run, where all is."""
    quality = diagnosis.quality
    if quality.steps_found_by is None:
        return ""
    shares = {
        "linked to ops": quality.linked_share,
        "with shapes": quality.shapes_share,
        "in graphs": quality.graph_share,
    }
    return ", ".join(f"{units.percent(share, 0)} {what}" for what, share in shares.items())


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table
