"""Undoing: how something is put back, and how everything is, to the end."""

import signal
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias

from gobrrr.machine.restore import without_garbage_collection

PutBack: TypeAlias = Callable[[], object]


def by_identity(read: Callable[[], list[Any]], write: Callable[[list[Any]], object]) -> PutBack:
    """Written only where something changed, in order: what is equal but another object is a change."""
    before = read()

    def put_back() -> None:
        now = read()
        if len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
            write(before)

    return put_back


def by_value(read: Callable[[], Any], write: Callable[[Any], object]) -> PutBack:
    """Written only where it differs."""
    before = read()

    def put_back() -> None:
        if read() != before:
            write(before)

    return put_back


def put_all_back(everything: Iterable[PutBack]) -> None:
    """In this order and to the end, whatever one of them raises: a second ^C waits, and a device that is broken
    comes last.
    """
    with interrupts_deferred(), without_garbage_collection(), ExitStack() as stack:
        for put_back in reversed(list(everything)):
            stack.callback(put_back)


@contextmanager
def interrupts_deferred() -> Iterator[None]:
    """A ^C meanwhile is raised at the end."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            signal.raise_signal(signal.SIGINT)
