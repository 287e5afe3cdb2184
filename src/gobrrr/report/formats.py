"""Formats by the ending of a file's name: for each kind of result, which function renders it.

A format is one line here and one function from the result to its text or bytes. The functions are imported when they
are called, so that this table costs a command line nothing. `.json` is not among them: it is the document itself.
"""

from importlib import import_module
from pathlib import Path
from typing import Any

FORMATS = {
    "step": {
        ".html": "pages.step.render",
        ".md": "markdown.step",
        ".svg": "picture.svg",
        ".png": "picture.png",
        ".pftrace": "perfetto.step",
    },
    "comparison": {
        ".html": "pages.comparison.render",
        ".md": "markdown.comparison",
        ".pftrace": "perfetto.comparison",
    },
    "predictions": {".html": "pages.predictions.render", ".md": "markdown.predictions"},
    "treatment": {".html": "pages.treatment.render", ".md": "markdown.treatment"},
    "lab": {".html": "pages.lab.render", ".md": "lab.markdown", ".txt": "lab.text"},
}
DATA = (".json", ".json.gz")

EXTRAS = {
    ".html": ("vl_convert", "html"),
    ".svg": ("vl_convert", "html"),
    ".png": ("vl_convert", "html"),
    ".pftrace": ("perfetto", "perfetto"),
}
"""What a format needs besides us: a module, and the extra that brings it."""


def ending(path: Path) -> str:
    """`.gz` belongs to what it compresses."""
    return "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix


def rendered(kind: str, result: Any, path: Path) -> bytes:
    """What the file is to hold; its ending must be one of the kind's."""
    module, _, function = FORMATS[kind][ending(path)].rpartition(".")
    made: str | bytes = getattr(import_module(f"gobrrr.report.{module}"), function)(result)
    return made if isinstance(made, bytes) else made.encode(errors="backslashreplace")
