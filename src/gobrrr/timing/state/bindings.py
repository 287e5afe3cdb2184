"""Bindings: what a container, attribute, closure cell or global refers to. Put back by reference, in place."""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from functools import partial
from types import CellType, FunctionType
from typing import Any

from gobrrr.timing.state.reach import EMPTY, globals_named, is_open, slots, value_or_empty
from gobrrr.timing.state.undo import PutBack, by_identity


def bindings(thing: object) -> Iterator[PutBack]:
    """How to undo what can happen to this very object."""
    if isinstance(thing, dict):
        yield _dict(thing)
    elif isinstance(thing, list):
        yield by_identity(lambda: list(thing), partial(thing.__setitem__, slice(None)))
    elif isinstance(thing, set | deque):
        yield by_identity(lambda: list(thing), partial(_refill, thing))
    elif isinstance(thing, CellType):
        name = "cell_contents"
        yield _variable(partial(getattr, thing, name), partial(setattr, thing, name), partial(delattr, thing, name))
    elif isinstance(thing, FunctionType):
        yield from (_global(thing.__globals__, name) for name in globals_named(thing))
    if is_open(thing):
        for slot in slots(thing):
            yield _variable(*(partial(act, thing) for act in (slot.__get__, slot.__set__, slot.__delete__)))


def _dict(thing: dict[Any, Any]) -> PutBack:
    """By the base class's own methods: what a subclass makes of them is not what it holds."""
    base = OrderedDict if isinstance(thing, OrderedDict) else dict
    items = list(thing.items())

    def refill(_flat: list[Any]) -> None:
        base.clear(thing)
        base.update(thing, items)

    return by_identity(lambda: [*thing.keys(), *thing.values()], refill)


def _refill(thing: set[Any] | deque[Any], before: list[Any]) -> None:
    thing.clear()
    (thing.update if isinstance(thing, set) else thing.extend)(before)


def _global(namespace: dict[str, Any], name: str) -> PutBack:
    read = partial(namespace.get, name, EMPTY)
    return _variable(read, partial(namespace.__setitem__, name), partial(namespace.__delitem__, name))


def _variable(read: Callable[[], object], write: Callable[[Any], object], delete: Callable[[], object]) -> PutBack:
    """Holds one value or none."""

    def put_back(before: list[Any]) -> None:
        if before[0] is EMPTY:
            delete()
        else:
            write(before[0])

    return by_identity(lambda: [value_or_empty(read)], put_back)
