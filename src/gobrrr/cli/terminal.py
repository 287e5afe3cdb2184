"""The terminal. Names in a file or a program are anyone's, and a terminal obeys what it is sent: so nothing passes here
that would move its cursor, set its title or hide a line.
"""

from typing import TYPE_CHECKING, TextIO

import click

if TYPE_CHECKING:
    from rich.console import RenderableType

_CONTROLS = {code: "\N{REPLACEMENT CHARACTER}" for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) != "\n"}
"""C0 and C1."""


_IN_ASCII = str.maketrans("µ·×→…–±²█▉▊▋▌▍▎▏", "u-x>.-~2#####   ")
"""One for one, so that tables stay straight: `?s` would be any time."""


def printable(text: str) -> str:
    return text.translate(_CONTROLS)


def say(sentence: str, file: TextIO | None = None) -> None:
    """To stderr, unless the program has put something else there."""
    click.echo(f"gobrrr: {printable(sentence)}", file=file, err=file is None)


def show_page(page: "RenderableType", file: TextIO | None = None) -> None:
    """Only the styles that we gave become escapes."""
    from rich.console import Console
    from rich.segment import Segment, Segments

    console = Console(file=file, highlight=False)
    letters = _IN_ASCII if console.options.ascii_only else {}
    console.print(
        Segments(Segment(printable(text).translate(letters), style) for text, style, _ in console.render(page)),
        crop=False,  # what is wider than the terminal is code, and whole
    )
