"""One line on stderr that says what is going on, and is gone when it is over."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.live import Live
from rich.text import Text


@contextmanager
def progress_line(phase: str, console: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Gives a function of (number, total, what). Nothing is shown where nobody watches.

    The line changes only when it is told to: a thread that redraws it would take the interpreter's lock from
    the very loops that are being timed.
    """
    console = Console(stderr=True) if console is None else console
    if not console.is_terminal:
        yield lambda _number, _total, _what: None
        return
    with Live(console=console, transient=True, auto_refresh=False) as live:
        yield lambda number, total, what: live.update(Text(f"{phase} {number}/{total}: {what}"), refresh=True)
