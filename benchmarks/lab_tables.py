"""Fills the tables of docs/regimes.md from the kept results of `gobrrr lab`: python benchmarks/lab_tables.py

A place is marked `<!-- lab: NAME -->` and `<!-- end -->`; its table comes from benchmarks/results/NAME/lab.json.
"""

import re
from pathlib import Path

from gobrrr import schema
from gobrrr.lab.result import Lab
from gobrrr.report.lab import markdown

ROOT = Path(__file__).parent.parent
PLACE = re.compile(r"(<!-- lab: (\w+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def filled(text: str, root: Path = ROOT) -> str:
    """The text with every place filled whose results are there."""

    def table(place: re.Match[str]) -> str:
        kept = root / "benchmarks" / "results" / place[2] / "lab.json"
        return f"{place[1]}{markdown(schema.read(Lab, kept))}{place[4]}" if kept.exists() else place[0]

    return PLACE.sub(table, text)


if __name__ == "__main__":
    page = ROOT / "docs" / "regimes.md"
    page.write_text(filled(page.read_text()))
