"""The machine as a page: every ceiling with its doubt, its vendor's word beside it, and the roofline."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.dtypes import MATRIX_MODES
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet
from gobrrr.machine.doubts import Doubt, excess_doubts, noise_doubts
from gobrrr.report.roofline import ASCII, UNICODE, Line, Roofline, draw

NEXT = "gobrrr count FILE.py:NAME"

_IN_ASCII = str.maketrans({"±": "+-", "·": "-", "µ": "u", "°": "", "×": "x", "²": "2"})


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    measured: str
    spread: str
    sheet: str = ""
    share: str = ""


@dataclass(frozen=True, slots=True)
class MachineView:
    """What the page shows, in words and numbers ready to print."""

    name: str
    facts: tuple[str, ...]
    sections: tuple[tuple[str, tuple[Row, ...]], ...]
    costs: str
    unmeasured: str
    doubts: tuple[Doubt, ...]
    roofline: Roofline
    has_sheet: bool
    known_by: str
    """`measured`, or `assumed` of a machine that nobody measured."""


def view(ceilings: Ceilings, sheet: Datasheet | None, now: datetime) -> MachineView:
    return MachineView(
        name=ceilings.device,
        facts=tuple(_facts(ceilings, sheet, now)),
        sections=tuple(_sections(ceilings, sheet)),
        costs=_costs(ceilings),
        unmeasured=", ".join(f"{name} ({reason})" for name, reason in ceilings.unmeasured.items()),
        doubts=all_doubts(ceilings, sheet),
        roofline=roofline_of(ceilings),
        has_sheet=sheet is not None,
        known_by="measured" if _is_measured(ceilings) else "assumed",
    )


def _is_measured(ceilings: Ceilings) -> bool:
    """Whoever measures does it with some threads."""
    return ceilings.threads > 0


def all_doubts(ceilings: Ceilings, sheet: Datasheet | None) -> tuple[Doubt, ...]:
    """Those of the moment of measuring, those of the noise, and those that the datasheet raises."""
    rates = {} if sheet is None else sheet.rates
    measured = {key: value for key in rates if (value := ceilings.value(key)) is not None}
    return (*ceilings.doubts, *noise_doubts(ceilings.spread), *excess_doubts(measured, rates))


def _facts(ceilings: Ceilings, sheet: Datasheet | None, now: datetime) -> Iterator[str]:
    software = [f"torch {ceilings.torch}" if ceilings.torch else None, ceilings.architecture]
    software += [f"driver {ceilings.driver}" if ceilings.driver else None]
    threads = f"{ceilings.threads} threads" if _is_measured(ceilings) else None
    yield " · ".join(part for part in (*software, threads) if part)
    sizes = {"memory": ceilings.memory_bytes, "cache": ceilings.cache_bytes}
    yield " · ".join(f"{units.capacity(size)} {name}" for name, size in sizes.items() if size is not None)
    if ceilings.host is not None and ceilings.host != ceilings.device:
        yield f"host {ceilings.host}"
    age = f"measured {units.age(ceilings.age_s(now))}" if _is_measured(ceilings) else "never measured"
    yield age + ("; no datasheet under this name" if sheet is None else "")
    if sheet is not None:
        yield f"datasheet: {sheet.source}"


def _sections(ceilings: Ceilings, sheet: Datasheet | None) -> Iterator[tuple[str, tuple[Row, ...]]]:
    for title, lines in _LAYOUT:
        rows = [_row(ceilings, sheet, *line) for line in (_REGION if _is_region(ceilings, title) else lines)]
        known = tuple(row for row in rows if row is not None)
        if known:
            yield title, known


_LAYOUT: tuple[tuple[str, tuple[tuple[str, str, Callable[[float | None, int], str]], ...]], ...] = (
    ("matrix", tuple((mode, f"matmul_flops_per_s.{mode}", units.flops_per_s) for mode in MATRIX_MODES)),
    (
        "vector",
        tuple((dtype, f"vector_flops_per_s.{dtype}", units.flops_per_s) for dtype in ("fp64", "fp32")),
    ),
    (
        "bytes",
        (
            ("memory, best", "dram_bytes_per_s", units.bytes_per_s),
            *((f"  {name}", f"dram_pattern_bytes_per_s.{name}", units.bytes_per_s) for name in ("read", "copy", "add")),
            ("cache", "cache_bytes_per_s", units.bytes_per_s),
            ("host to device", "h2d_bytes_per_s", units.bytes_per_s),
            ("device to host", "d2h_bytes_per_s", units.bytes_per_s),
        ),
    ),
    (
        "shortest kernel",
        tuple(
            (name, f"shortest_kernel_class_s.{name}", units.seconds)
            for name in ("elementwise", "reduction", "gemm", "attention")
        ),
    ),
    (
        "host",
        (
            ("eager op", "dispatch_s", units.seconds),
            ("  with autograd", "dispatch_autograd_s", units.seconds),
            ("graph replay", "graph_replay_s", units.seconds),
        ),
    ),
)
"""Sections of the table, each row with its key and the unit it is read in."""


_REGION = (("parallel region", "shortest_kernel_s", units.seconds),)


def _is_region(ceilings: Ceilings, title: str) -> bool:
    """On a CPU all classes of kernels start alike: by waking the threads."""
    return title == "shortest kernel" and ceilings.kind == "cpu"


def _row(
    ceilings: Ceilings, sheet: Datasheet | None, name: str, key: str, text: Callable[[float | None, int], str]
) -> Row | None:
    value = ceilings.value(key)
    if value is None:
        return None
    spread = ceilings.spread.get(key)
    said = None if sheet is None else sheet.rates.get(key)
    return Row(
        name=name,
        measured=text(value, units.digits_for(spread)),
        spread="" if spread is None else units.percent(spread / 2),
        sheet="" if said is None else text(said, 3),
        share="" if said is None else units.percent(value / said, 0),
    )


def _costs(ceilings: Ceilings) -> str:
    """Two digits: a cost is a rate over another, and both have their noise."""
    return ", ".join(f"{name} {units.significant(cost, 2)}" for name, cost in ceilings.transcendental_cost.items())


def roofline_of(ceilings: Ceilings) -> Roofline:
    slopes = (("DRAM", ceilings.dram_bytes_per_s), ("cache", ceilings.cache_bytes_per_s))
    roofs = dict(sorted(ceilings.matmul_flops_per_s.items(), key=lambda item: -item[1]))
    if (vector := ceilings.vector_flops_per_s.get("fp32")) is not None:
        roofs["vector fp32"] = vector
    return Roofline(
        slopes=tuple(Line(name, rate) for name, rate in slopes if rate) if ceilings.dram_bytes_per_s else (),
        roofs=tuple(Line(name, rate) for name, rate in roofs.items()),
        ridges={name: ceilings.ridge_flops_per_byte[name] for name in roofs if name in ceilings.ridge_flops_per_byte},
    )


def render(page: MachineView, console: Console) -> None:
    plain = console.options.ascii_only

    def say(text: str, style: str = "", indent: int = 0) -> None:
        words = text.translate(_IN_ASCII) if plain else text
        console.print(Padding(Text(words, style), (0, 0, 0, indent), expand=False))

    say(page.name, "bold")
    for fact in page.facts:
        say(fact, "dim", 2)
    console.print(_table(page, str.maketrans({}) if not plain else _IN_ASCII))
    if page.costs:
        say(f"cost of a function in multiply-adds: {page.costs}", indent=2)
    if page.unmeasured:
        say(f"not measured: {page.unmeasured}", "dim", 2)
    _say_roofline(page.roofline, console)
    for doubt in page.doubts:
        say(f"doubt: {doubt.what}; {doubt.remedy}", "yellow")
    say(f"next: {NEXT}", "bold")


def _table(page: MachineView, letters: dict[int, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    columns = ("", page.known_by, "±", "datasheet", "of it")
    for column in columns if page.has_sheet else columns[:3]:
        table.add_column(column.translate(letters), justify="left" if not column else "right", no_wrap=True)
    for title, rows in page.sections:
        table.add_row(Text(title, "bold"))
        for row in rows:
            table.add_row(*(cell.translate(letters) for cell in _cells(row, has_sheet=page.has_sheet)))
    return table


def _cells(row: Row, *, has_sheet: bool) -> Iterable[str]:
    cells = (f"  {row.name}", row.measured, row.spread, row.sheet, row.share)
    return cells if has_sheet else cells[:3]


def _say_roofline(roofline: Roofline, console: Console) -> None:
    lines = draw(roofline, min(console.width, 120), ASCII if console.options.ascii_only else UNICODE)
    if lines:
        console.print()
    for line in lines:
        console.print(Text(line), no_wrap=True, overflow="ellipsis")
    console.print()
