"""The terminal view of a Diagnosis: the verdict first, then where the time goes."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.diagnose.batch import BatchVerdict
from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.diagnose.findings import nothing_to_gain
from gobrrr.diagnose.modules import largest
from gobrrr.diagnose.rows import OpRow, layers_as_one
from gobrrr.work.registry import canonical

TOP_OPS = 10
TOP_MODULES = 8
MOST_EVIDENCE = 4
MOST_NAMES = 3
MOST_SYNC_LINES = 2
BAR_WIDTH = 24
ROUNDING = 1e-9
"""Of the step: less is what sums of floats leave over."""

_BLOCKS = " ▏▎▍▌▋▊▉█"
_PHASES = {"forward": "fwd", "backward": "bwd", "optimizer": "opt", "other": "   "}
_SEEN = {
    "windows": "steps without a profiler",
    "replayed": "recorded steps without what recording cost",
}
NEAR = 0.7
"""Of the floor: good kernels reach so much of their ceilings, so a step above it has no more to give."""
_HALF = 0.5
"""If less of the leading regime is attained, the verdict says so: the units are occupied, not used."""


def render(diagnosis: Diagnosis, next_command: str) -> RenderableType:
    return Group(
        Text.assemble(("gobrrr ", "bold"), f"· {diagnosis.machine.name} · {diagnosis.target}"),
        Text(_step(diagnosis)),
        Text(verdict(diagnosis), style="bold"),
        "",
        _where(diagnosis),
        *(Text(line) for line in _idle(diagnosis)),
        "",
        _classes(diagnosis),
        "",
        _ops(diagnosis),
        "",
        *_modules(diagnosis),
        *_findings(diagnosis),
        "",
        *_batch_test(diagnosis.batch_test),
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
        return _overhead(diagnosis)
    attained, inefficient = diagnosis.attained_s.get(regime), diagnosis.inefficient_s.get(regime)
    if attained is None or inefficient is None:
        return ""
    return f"{units.seconds(attained)} attained, {units.seconds(inefficient)} inefficient"


def _overhead(diagnosis: Diagnosis) -> str:
    """Its parts: what is neither idle nor latency are transfers that no kernel covers."""
    told = f"{units.seconds(diagnosis.idle_s)} idle, {units.seconds(diagnosis.latency_s)} latency"
    transfers_s = diagnosis.seconds["overhead"] - diagnosis.idle_s - diagnosis.latency_s
    return told if transfers_s <= ROUNDING * diagnosis.step_s else f"{told}, {units.seconds(transfers_s)} transfers"


def _idle(diagnosis: Diagnosis) -> Iterator[str]:
    """What the host did while nothing ran, the longest first, and where it waited."""
    causes = [(cause, seconds) for cause, seconds in (diagnosis.idle_causes_s or {}).items() if seconds > 0]
    if causes:
        parts = (f"{cause.replace('_', ' ')} {units.seconds(seconds)}" for cause, seconds in causes)
        yield f"idle: {', '.join(parts)}"
    if "sync" in dict(causes) and (lines := _sync_lines(diagnosis)):
        yield f"      waits at {lines}"


def _sync_lines(diagnosis: Diagnosis) -> str:
    waits = sorted(diagnosis.syncs or (), key=lambda sync: -sync.seconds)
    lines = list(dict.fromkeys(f"{sync.source} ({sync.call})" for sync in waits if sync.source is not None))
    return ", ".join(lines[:MOST_SYNC_LINES]) + (", …" if len(lines) > MOST_SYNC_LINES else "")


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
    table = _table("longest ops", "time", "", "floor", "regime", "where")
    table.columns[4].justify = table.columns[5].justify = "left"
    table.expand = True
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    table.columns[0].ratio, table.columns[5].ratio = 3, 4
    for row in layers_as_one(diagnosis.ops)[:TOP_OPS]:
        table.add_row(
            Text(f"{row.calls}× {_op_name(row)}"),
            units.seconds(row.seconds),
            units.percent(row.seconds / diagnosis.step_s, 0),
            units.percent(row.floor_s / row.seconds if row.floor_s is not None and row.seconds else None, 0),
            row.regime,
            Text(f"{_PHASES[row.phase]} {Path(row.source).name if row.source else row.module}"),
        )
    return table


def _modules(diagnosis: Diagnosis) -> Iterator[RenderableType]:
    """The longest, with the layers of a kind as one; nothing where no module is known."""
    lines = largest(diagnosis.modules, TOP_MODULES)
    if not lines:
        return
    table = _table("longest modules", "time", "of busy", "of floor", "regime", "kernels")
    table.columns[4].justify = "left"
    for line in lines:
        node = line.node
        often = f" × {node.modules}" if node.modules > 1 else ""
        table.add_row(
            Text(f"{'  ' * line.depth}{line.label}{often}"),
            units.seconds(node.seconds),
            units.percent(node.share, 0),
            units.percent(node.floor_s / node.seconds if node.floor_s is not None and node.seconds else None, 0),
            max(node.regimes_s, key=node.regimes_s.__getitem__),
            str(node.calls),
        )
    yield table
    yield ""


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
        yield Text(_unexplained(diagnosis) or sentence)


def _unexplained(diagnosis: Diagnosis) -> str | None:
    """Far from the floor there is something to gain even if no finding says how: in which part of the rest."""
    if diagnosis.fraction_of_floor is None or diagnosis.fraction_of_floor >= NEAR:
        return None
    rest_s = {
        "inefficient kernels": sum(diagnosis.inefficient_s.values()),
        "latency": diagnosis.latency_s,
        "idle": diagnosis.idle_s,
        "communication": diagnosis.seconds["communication"],
        "uncounted kernels": diagnosis.seconds["uncounted"],
    }
    largest = max(rest_s, key=rest_s.__getitem__)
    return (
        f"no known problem explains why the step is at {units.percent(diagnosis.fraction_of_floor, 0)} of its floor; "
        f"the largest part of the rest is {largest}, {units.seconds(rest_s[largest])}"
    )


def _batch_test(test: BatchVerdict | None) -> Iterator[Text]:
    if test is None:
        return
    interval = f"{units.times(test.ratio_low)} to {units.times(test.ratio_high)}"
    moved = "" if test.bytes_ratio is None else f", and moves {units.times(test.bytes_ratio)} the bytes"
    yield Text.assemble(
        ("batch test", "bold"), f"  twice the batch takes {units.times(test.ratio)} the time ({interval}){moved}"
    )
    yield Text(f"     → {test.explanation}")
    yield Text()


def _sureness(diagnosis: Diagnosis) -> Iterator[str]:
    yield (
        f"counted by formula {units.percent(diagnosis.coverage['formula'], 0)} of busy time; floors: compulsory "
        f"{units.seconds(diagnosis.compulsory_floor_s)}, fused {units.seconds(diagnosis.fused_floor_s)}, as run "
        f"{units.seconds(diagnosis.as_run_floor_s)}; under the profiler the step took "
        f"{units.seconds(diagnosis.step_profiled_s)}"
    )
    if recorded := _recorded(diagnosis):
        yield f"of busy time, {recorded}; ceilings: {diagnosis.machine.ceilings_from}"
    if used := _gpu_use(diagnosis):
        yield f"while the step was timed the GPU had {used}"
    for warning in diagnosis.quality.warnings:
        yield f"doubt: {warning}"


def _gpu_use(diagnosis: Diagnosis) -> str:
    percent, clock_hz, power_w = diagnosis.gpu_util_percent, diagnosis.gpu_clock_hz, diagnosis.gpu_power_w
    told = (
        None if percent is None else f"{percent:.0f} % utilization",
        None if clock_hz is None else f"{clock_hz / 1e6:.0f} MHz",
        None if power_w is None else f"{power_w:.0f} W",
        None
        if diagnosis.gpu_memory_bytes is None
        else f"{units.capacity(diagnosis.gpu_memory_bytes)} of memory in use",
    )
    return ", ".join(text for text in told if text is not None)


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
