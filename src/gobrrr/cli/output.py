"""`-o`: the ending of a file's name says what is written into it."""

import os
import sys
import webbrowser
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from gobrrr import schema
from gobrrr.cli.terminal import say, show_page
from gobrrr.errors import UsageError
from gobrrr.extras import need
from gobrrr.report.formats import DATA, EXTRAS, FORMATS, ending, rendered

if TYPE_CHECKING:
    from rich.console import RenderableType

    from gobrrr.schema import Document

C = TypeVar("C", bound=Callable[..., Any])


def output_option(kinds: str | tuple[str, ...], document: str) -> Callable[[C], C]:
    """Adds `-o` to a command whose result is of that kind, or of one of several; it gets the paths as `outputs`."""
    kinds = (kinds,) if isinstance(kinds, str) else kinds
    known = tuple(dict.fromkeys(name for kind in kinds for name in FORMATS[kind]))

    def checked(_context: click.Context, _option: click.Parameter, paths: tuple[Path, ...]) -> tuple[Path, ...]:
        check_endings(known, paths)  # what is wrong or missing is told before anything is measured
        check_writable(paths)
        return paths

    return click.option(
        "--output",
        "-o",
        "outputs",
        metavar="FILE",
        multiple=True,
        type=click.Path(path_type=Path),
        callback=checked,
        help=f"Write a file, in the format of its ending: {', '.join(known)}; .json or .json.gz keeps "
        f"{document}. May be repeated.",
    )


def check_endings(known: Iterable[str], paths: Iterable[Path]) -> None:
    for path in paths:
        if ending(path) not in (*known, *DATA):
            one_of = ", ".join((*known, *DATA))
            raise UsageError(f"the ending of {path} says no format: it should be one of {one_of}")
        if ending(path) in EXTRAS:
            need(*EXTRAS[ending(path)])


def check_writable(paths: Iterable[Path]) -> None:
    for path in paths:
        if path.is_dir():
            raise UsageError(f"{path} is a folder, and not a file to write into")
        there = next(one for one in (path, *path.absolute().parents) if one.exists())  # folders are made
        if not os.access(there, os.W_OK) or (there != path and not there.is_dir()):
            raise UsageError(f"{path} cannot be written: {there} does not let you")


def answer(
    kind: str,
    result: Any,
    document: "Document",
    render: "Callable[[], RenderableType]",
    *,
    outputs: Iterable[Path],
    as_json: bool,
) -> None:
    """The result as files first, and then on stdout for a program or for a person, whatever became of the files."""
    try:
        write_outputs(kind, result, document, outputs)
    finally:
        if as_json:
            click.echo(schema.dumps(document))
        else:
            show_page(render())


def kept(outputs: Iterable[Path]) -> str | None:
    """The file that holds the data, if one does."""
    return next((str(path) for path in outputs if ending(path) in DATA), None)


def write_outputs(kind: str, result: Any, document: "Document", outputs: Iterable[Path]) -> None:
    """Each file whole or not at all, the data first; a page is opened where somebody could look at it."""
    for path in sorted(outputs, key=lambda path: ending(path) not in DATA):
        if ending(path) in DATA:
            schema.write(document, path)
        else:
            schema.write_whole(rendered(kind, result, path), path)
            say(f"wrote {path}")
        if path.suffix == ".html" and has_display():
            webbrowser.open(path.resolve().as_uri())


def has_display() -> bool:
    """Somebody sits at a terminal of this machine, with a screen that can show more than text."""
    here = sys.stdout.isatty() and not any(os.environ.get(name) for name in ("CI", "SSH_CONNECTION", "SSH_TTY"))
    screens = ("DISPLAY", "WAYLAND_DISPLAY")
    return here and (sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in screens))
