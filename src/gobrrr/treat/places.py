"""Places: names under which a step finds tensors, and others after it: entries of dicts and lists, variables."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from types import CellType, FunctionType
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.reach import globals_named, value_or_empty

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Place:
    name: str
    where: tuple[int, object]
    """In what, and where in it."""
    find: Callable[[], Any]
    bind: Callable[[Any], object]


def entries(thing: "dict[Any, Any]", keys: Iterable[object] | None = None) -> list[Place]:
    """Of all keys, or of these."""
    return [_entry(thing, key) for key in (thing if keys is None else keys)]


def bound(things: Iterable[object]) -> "list[tuple[Place, torch.Tensor | None]]":
    """The places in these that hold a tensor, and which, or nothing yet."""
    import torch

    return [(place, value) for place, value in all_places(things) if value is None or isinstance(value, torch.Tensor)]


def all_places(things: Iterable[object]) -> list[tuple[Place, Any]]:
    """In these, and what they hold."""
    return [(place(), value) for thing in things for place, value in _held(thing)]


def rebound(before: Iterable[tuple[Place, Any]]) -> Iterator[tuple[Place, Any]]:
    """Those that hold another tensor by now, or something made of tensors: what is computed anew each time, and not in
    its place.
    """
    for place, old in before:
        value = place.find()
        if value is not old and has_tensors(value):
            yield place, value


def has_tensors(value: object) -> bool:
    import torch
    from torch.utils._pytree import tree_leaves

    return any(isinstance(one, torch.Tensor) for one in tree_leaves(value))


def _held(thing: object) -> Iterator[tuple[Callable[[], Place], object]]:
    """An object's attributes are entries too."""
    if isinstance(thing, dict):
        yield from ((partial(_entry, thing, key), value) for key, value in list(thing.items()))
    elif isinstance(thing, list):
        yield from ((partial(_item, thing, number), value) for number, value in enumerate(thing))
    elif isinstance(thing, CellType):
        place = variable(thing)
        yield lambda: place, place.find()
    elif isinstance(thing, FunctionType):
        namespace = thing.__globals__
        named = [name for name in globals_named(thing) if name in namespace]
        yield from ((partial(_entry, namespace, name), namespace[name]) for name in named)


def _entry(thing: "dict[Any, Any]", key: object) -> Place:
    name = key if isinstance(key, str) else f"a {type(key).__name__}"
    return Place(name, (id(thing), key), partial(thing.get, key), partial(thing.__setitem__, key))


def _item(thing: "list[Any]", number: int) -> Place:
    where = id(thing), number
    return Place(f"item {number}", where, partial(_at, thing, number), partial(thing.__setitem__, number))


def _at(thing: "list[Any]", number: int) -> Any:
    return thing[number] if number < len(thing) else None


def variable(cell: CellType) -> Place:
    contents, write = partial(getattr, cell, "cell_contents"), partial(setattr, cell, "cell_contents")
    return Place("a variable", (id(cell), None), partial(value_or_empty, contents), write)
