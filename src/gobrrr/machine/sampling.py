"""Watching something while something else runs, from a thread that sleeps in between."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from statistics import median
from threading import Event, Thread
from typing import TypeVar

T = TypeVar("T")

PERIOD_S = 0.1
"""Drivers renew what they tell about ten times a second; and an answer a tenth of a second costs the host nothing."""


@contextmanager
def sampling(ask: Callable[[], T | None], period_s: float = PERIOD_S) -> Iterator[list[T]]:
    """The list that the answers go into while the body runs; a question without an answer is not asked again."""
    answers: list[T] = []
    done = Event()

    def watch() -> None:
        while not done.wait(period_s) and (answer := ask()) is not None:
            answers.append(answer)

    thread = Thread(target=watch, name="gobrrr sampling", daemon=True)
    thread.start()
    try:
        yield answers
    finally:
        done.set()
        thread.join()


def middle(values: Iterable[float | None]) -> float | None:
    """The median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None
