"""Expected texts as files: `GOLDEN=write pytest` writes them anew, and the difference is read before it is kept."""

import os
from pathlib import Path

FOLDER = Path(__file__).parent / "data" / "golden"


def assert_golden(name: str, text: str) -> None:
    path = FOLDER / name
    if os.environ.get("GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
