"""Work on many items in as many processes as we may use cores (`taskset` gives fewer), with progress on stderr."""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import get_context
from typing import TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")

LINES = 50
"""Of progress, in all."""


def worked(work: Callable[[Item], Result], items: Sequence[Item], what: str, *, chunk: int = 1) -> Iterator[Result]:
    """In the order of the items."""
    every = max(1, len(items) // LINES)
    with get_context("spawn").Pool(len(os.sched_getaffinity(0))) as pool:
        for number, result in enumerate(pool.imap(work, items, chunk), 1):
            if number % every == 0 or number == len(items):
                print(f"{number} of {len(items)} {what}", file=sys.stderr, flush=True)
            yield result
