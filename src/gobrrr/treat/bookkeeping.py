"""Bookkeeping: what a step leaves changed that is no tensor, as a counter, a log or a schedule of rates.

A compiler takes every other number for another program and compiles it anew; a captured graph replays kernels and
leaves the books as they are.
"""

from collections.abc import Iterable

from gobrrr.timing.state import preserved
from gobrrr.timing.state.reach import held, reached
from gobrrr.treat.subject import Subject

NUMBERS_AND_WORDS = (bool, int, float, complex, str, bytes)


def books_kept(subject: Subject) -> list[object]:
    """Things that hold other numbers or words after the step as it came, or more or fewer of whatever they hold."""
    if subject.books is None:
        with subject.ended():
            subject.books = _changed(subject)
    return subject.books


def _changed(subject: Subject) -> list[object]:
    things = reached(subject.origin)
    with preserved(subject.origin):
        before = [_entries(thing) for thing in things]
        subject.run()
        there = {id(thing) for thing in reached(subject.origin)}  # and not made anew for each step
        return [
            thing for thing, was in zip(things, before, strict=True) if id(thing) in there and was != _entries(thing)
        ]


def of_the_step(books: Iterable[object], subject: Subject) -> list[object]:
    """Without those of models, which are compiled either way, and of optimizers and schedules, which are not."""
    import torch

    scheduler = torch.optim.lr_scheduler.LRScheduler
    owners = [*subject.models.values(), *subject.optimizers]
    owners += [thing for thing in reached(subject.origin) if isinstance(thing, scheduler)]
    theirs = {id(thing) for owner in owners for thing in reached(owner)}
    return [book for book in books if id(book) not in theirs]


def _entries(thing: object) -> list[object]:
    return [one if isinstance(one, NUMBERS_AND_WORDS) else None for one in held(thing)]
