"""What a finding means, as a page: for the terminal, and all of them as one document."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import ClassVar

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from gobrrr.diagnose.findings import Rule

CHAPTERS = {
    "B1": "Overhead",
    "B2": "Bandwidth",
    "B3": "Compute",
    "B5": "Measurement",
    "B6": "Memory",
}


@dataclass(frozen=True, slots=True)
class Page:
    code: str
    title: str
    explanation: str
    reads: str
    treatment: str
    fix: str
    unless: str
    patient: str
    """How to see one, or why there is none."""


@dataclass(frozen=True, slots=True)
class Pages:
    """What `gobrrr explain --json` prints."""

    SCHEMA: ClassVar[str] = "findings"
    VERSION: ClassVar[int] = 1

    findings: tuple[Page, ...]


def page(rule: Rule, patient: str) -> Page:
    return Page(rule.code, rule.title, rule.explanation, rule.reads, rule.treatment, rule.fix, rule.unless, patient)


def render(one: Page) -> RenderableType:
    return Group(
        Text(f"{one.code} {one.title}", style="bold"),
        Text(one.explanation),
        "",
        Text.assemble(("evidence   ", "bold"), one.reads),
        Text.assemble(("what helps ", "bold"), one.treatment),
        Text.assemble(("not if     ", "bold"), one.unless),
        Text.assemble(("a patient  ", "bold"), one.patient),
        "",
        Padding(Text(one.fix), (0, 0, 0, 4)),
        "",
        Text(f"next: gobrrr demo {one.code}" if one.patient.startswith("gobrrr demo") else "next: gobrrr explain"),
    )


def listing(pages: Iterable[Page]) -> RenderableType:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in ("code", "finding", "what helps"):
        table.add_column(column, overflow="fold")
    some = list(pages)
    for one in some:
        table.add_row(one.code, one.title, one.treatment)
    return Group(table, "", Text(f"next: gobrrr explain {some[0].code}", style="bold"))


def markdown(pages: Iterable[Page]) -> str:
    """All pages by chapter."""
    return "\n".join(_lines(list(pages)))


def _lines(pages: list[Page]) -> Iterator[str]:
    yield "# Findings"
    yield ""
    yield (
        "What gobrrr looks for, as `gobrrr explain CODE` prints it. Codes never change their meaning. Seconds at "
        "stake are of the step, by the counterfactual of docs/design.md; findings overlap and do not add, and where "
        "one counts seconds of another it says so. This file is written by `gobrrr explain --markdown > "
        "docs/findings.md`."
    )
    for prefix, chapter in CHAPTERS.items():
        yield from ("", f"## {prefix}xx {chapter}")
        for one in pages:
            if one.code.startswith(prefix):
                yield from _section(one)


def _section(one: Page) -> Iterator[str]:
    yield from ("", f"### {one.code} {one.title}", "", one.explanation, "")
    yield f"* **Evidence**: {one.reads}."
    yield f"* **What helps**: {one.treatment}."
    yield f"* **Not if**: {one.unless}"
    yield f"* **A patient**: {one.patient}."
    yield from ("", "```python", one.fix, "```")
