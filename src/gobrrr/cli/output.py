"""`-o`: what an Exam is written as follows from the ending of the file's name."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gobrrr import schema
from gobrrr.errors import UsageError
from gobrrr.extras import need

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gobrrr.exam import Exam

_PICTURE = ".pftrace"


def _writable(_ctx: click.Context, _param: click.Parameter, path: Path | None) -> Path | None:
    """What is missing is told before anything is measured."""
    if path is not None and path.suffix == _PICTURE:
        need("perfetto", "perfetto")
    return path


output_option = click.option(
    "--output",
    "-o",
    type=click.Path(path_type=Path),
    callback=_writable,
    help="Keep the Exam in this file (.json or .json.gz), or draw it for ui.perfetto.dev (.pftrace).",
)


def is_kept(path: Path | None) -> bool:
    """As an Exam, which can be shown again."""
    return path is not None and path.suffix != _PICTURE


def write_output(exam: "Exam", path: Path) -> None:
    if is_kept(path):
        schema.write(exam, path)
    else:
        draw([exam], path)


def draw(exams: "Sequence[Exam]", path: Path) -> None:
    """All of them in one file, each with its own tracks."""
    from gobrrr.report import perfetto

    if is_kept(path):
        raise UsageError(f"{path} has no ending that says what to draw: {_PICTURE}")
    perfetto.write(exams, path)
