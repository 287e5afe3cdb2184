"""The terminal view of a Diagnosis: the verdict first, then where the time goes."""

from collections.abc import Iterator
from pathlib import Path

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.diagnose.diagnosis import Diagnosis
from gobrrr.report.view import FindingLine, Part, StepView, step_view

TOP_OPS = 10
TOP_MODULES = 8
MOST_EVIDENCE = 4
BAR_WIDTH = 24

_BLOCKS = " ▏▎▍▌▋▊▉█"
_PHASES = {"forward": "fwd", "backward": "bwd", "optimizer": "opt", "other": "   "}


def render(diagnosis: Diagnosis, next_command: str) -> RenderableType:
    view = step_view(diagnosis)
    return Group(
        Text.assemble(("gobrrr ", "bold"), f"· {view.machine} · {view.target}"),
        Text(f"  {view.step}"),
        Text("; ".join(view.verdict), style="bold"),
        "",
        _where(view),
        *(Text(line) for line in _idle(view)),
        "",
        _classes(view),
        "",
        _ops(view),
        "",
        *_modules(view),
        *(line for found in view.findings for line in _finding(found)),
        *([] if view.nothing is None else [Text(view.nothing)]),
        "",
        *_batch_test(view),
        *(Text(line) for line in (*view.measured, *(f"doubt: {doubt}" for doubt in view.doubts))),
        Text(f"next: {next_command}", style="bold"),
    )


def _where(view: StepView) -> Table:
    table = _table("where the time goes", "", "", "", "")
    for part in view.parts:
        table.add_row(
            part.regime, bar(part.share), units.seconds(part.seconds), units.percent(part.share, 0), note(part)
        )
    table.columns[1].justify = table.columns[4].justify = "left"
    for column in table.columns[:4]:
        column.no_wrap = True
    return table


def note(part: Part) -> str:
    return ", ".join(f"{units.seconds(piece.seconds)} {piece.name}" for piece in part.pieces)


def _idle(view: StepView) -> Iterator[str]:
    """What the host did while nothing ran, the longest first, and where it waited."""
    if view.idle:
        yield f"idle: {', '.join(f'{cause} {units.seconds(seconds)}' for cause, seconds in view.idle.items())}"
    if view.waits is not None:
        yield f"      waits at {view.waits}"


def bar(share: float) -> str:
    """Eighths of a block: a share of 1 is as wide as the bar may be."""
    eighths = round(max(0.0, min(1.0, share)) * BAR_WIDTH * 8)
    return "█" * (eighths // 8) + _BLOCKS[eighths % 8].strip()


def _classes(view: StepView) -> Table:
    table = _table("class", "time", "", "FLOPs", "FLOP/s", "bytes", "B/s")
    for line in view.classes:
        table.add_row(
            line.name,
            units.seconds(line.seconds),
            units.percent(line.share, 0),
            units.flops(line.flops),
            units.flops_per_s(line.flops_per_s),
            units.moved(line.bytes),
            units.bytes_per_s(line.bytes_per_s),
        )
    return table


def _ops(view: StepView) -> Table:
    table = _table("longest ops", "time", "", "floor", "regime", "where")
    table.columns[4].justify = table.columns[5].justify = "left"
    table.expand = True
    for column in table.columns:
        column.no_wrap, column.overflow = True, "ellipsis"
    table.columns[0].ratio, table.columns[5].ratio = 3, 4
    for line in view.ops[:TOP_OPS]:
        table.add_row(
            Text(f"{line.calls}× {line.label}"),
            units.seconds(line.seconds),
            units.percent(line.share, 0),
            units.percent(line.of_floor, 0),
            line.regime,
            Text(f"{_PHASES[line.phase]} {Path(line.source).name if line.source else line.module}"),
        )
    return table


def _modules(view: StepView) -> Iterator[RenderableType]:
    """The longest, with the layers of a kind as one; nothing where no module is known."""
    longest = sorted(view.modules, key=lambda line: -line.seconds)[:TOP_MODULES]
    if not longest:
        return
    table = _table("longest modules", "time", "of busy", "of floor", "regime", "kernels")
    table.columns[4].justify = "left"
    for column in table.columns[1:]:
        column.no_wrap = True
    for line in (line for line in view.modules if line in longest):
        often = f" × {line.modules}" if line.modules > 1 else ""
        table.add_row(
            Text(f"{'  ' * line.depth}{line.label}{often}", no_wrap=True, overflow="ellipsis"),
            units.seconds(line.seconds),
            units.percent(line.share, 0),
            units.percent(line.of_floor, 0),
            line.regime,
            str(line.calls),
        )
    yield table
    yield ""


def _finding(found: FindingLine) -> Iterator[RenderableType]:
    """What is at stake, what was seen and what to do."""
    stake = f"{units.seconds(found.seconds_at_stake)} of the step, {units.seconds(found.device_seconds)} of the device"
    yield Text.assemble((f"{found.code} {found.title}", "bold"), f"  {stake} at stake")
    for line in found.evidence[:MOST_EVIDENCE]:
        yield _indented(line)
    yield _indented(f"→ {found.treatment}")


def _indented(text: str) -> RenderableType:
    """The lines that it wraps into too, so that findings can be told apart."""
    return Padding(Text(text), (0, 0, 0, 5), expand=False)


def _batch_test(view: StepView) -> Iterator[RenderableType]:
    if view.batch_test is not None:
        seen, meaning = view.batch_test
        yield Text.assemble(("batch test", "bold"), f"  {seen}")
        yield _indented(f"→ {meaning}")
        yield Text()


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table
