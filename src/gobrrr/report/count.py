"""The terminal view of a Tally."""

from collections.abc import Callable, Mapping
from itertools import islice

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.work.op import CountedBy
from gobrrr.work.tally import OpRow, Share, Tally, alike, summed

LARGEST_OPS = 12
LARGEST_MODULES = 12


def render(target: str, count: Tally, *, real: bool) -> RenderableType:
    how = "run for real" if real else "fake tensors, nothing ran"
    return Group(
        Text.assemble(("gobrrr count ", "bold"), f"{target} · one step · {how}"),
        *_headline(count),
        "",
        _shares("class", count.classes, count),
        "",
        _shares("phase", count.phases, count),
        "",
        _shares("module", _largest_modules(count), count),
        "",
        _shares("op · phase module", _largest_ops(count), count),
        "",
        *_coverage(count),
        Text("next: gobrrr machine", style="bold"),
    )


def _headline(count: Tally) -> list[Text]:
    modes = ", ".join(f"{units.flops(number)} {mode}" for mode, number in count.matrix_flops.items()) or "none"
    intensity = units.per_byte(count.flops / count.bytes if count.bytes else None)
    return [
        Text(f"  work    {units.flops(count.flops)} needed, {units.moved(count.bytes)} moved: {intensity}"),
        Text(f"  matrix  {modes}; {units.flops(count.flops_dense)} dense, as torch.utils.flop_counter counts"),
        Text(
            f"  memory  peak {units.capacity(count.peak_memory_bytes)}, before the step "
            f"{units.capacity(count.resident_memory_bytes)}, kept for backward "
            f"{units.capacity(count.saved_activation_bytes)}"
        ),
    ]


def _shares(what: str, parts: Mapping[str, Share], count: Tally) -> Table:
    table = _table(what, "FLOPs", "", "bytes", "", "FLOP/B", "calls")
    for name, share in parts.items():
        if share.calls:
            table.add_row(
                name,
                units.flops(share.flops),
                _percent(share.flops, count.flops),
                units.moved(share.bytes),
                _percent(share.bytes, count.bytes),
                units.significant(share.flops / share.bytes) if share.flops is not None and share.bytes else "",
                str(share.calls),
            )
    return table


def _largest_modules(count: Tally) -> dict[str, Share]:
    """Layers alike in one row; a row that only repeats the one around it is left out."""
    merged = summed((alike(module), share) for module, share in count.modules.items())
    telling = {name: share for name, share in merged.items() if merged.get(name.rpartition(".")[0]) != share}
    shown = _names(count)
    return {shown(name): share for name, share in islice(telling.items(), LARGEST_MODULES)}


def _names(count: Tally) -> Callable[[str], str]:
    """`Net.block.*` as `.block.*` where all modules are Net's: the root's own row says its name."""
    roots = {module.partition(".")[0] for module in count.modules}

    def below_root(module: str) -> str:
        _, dot, rest = module.partition(".")
        return f"{dot}{rest}" if dot and len(roots) == 1 else module

    return below_root


def _largest_ops(count: Tally) -> dict[str, Share]:
    """By op, phase and the module around it, layers alike in one row."""
    shown = _names(count)
    return dict(islice(summed((_op_name(row, shown), _row_share(row)) for row in count.ops).items(), LARGEST_OPS))


def _op_name(row: OpRow, shown: Callable[[str], str]) -> str:
    mark = "" if row.counted_by is CountedBy.FORMULA else f" ({row.counted_by.value})"
    where = "optimizer" if row.phase == "optimizer" else f"{row.phase} {shown(alike(row.module))}".rstrip()
    return f"{row.name.removeprefix('aten::')}{mark} · {where}"


def _row_share(row: OpRow) -> Share:
    unknown = row.calls if row.counted_by is CountedBy.UNKNOWN else 0
    return Share(row.calls, unknown, row.flops, row.flops_dense, row.bytes)


def _coverage(count: Tally) -> list[Text]:
    lines = [
        Text(
            f"counted by formula {units.percent(count.coverage['formula'])}, by default "
            f"{units.percent(count.coverage['default'])}, unknown {units.percent(count.coverage['unknown'])} "
            "of the calls that launch kernels"
        )
    ]
    for kind, names in (("by default", count.defaults), ("unknown", count.unknowns)):
        if names:
            listed = ", ".join(f"{name} ({calls})" for name, calls in names.items())
            lines.append(Text(f"  {kind}: {listed}", style="yellow"))
    return lines


def _percent(part: float | None, whole: float) -> str:
    return units.percent(part / whole) if whole and part is not None else ""


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table
