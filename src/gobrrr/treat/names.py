"""Names that a step reads: variables of its functions, and attributes of the objects whose methods these are.

Followed are functions and methods that stand under such names and come from where the step comes from; libraries keep
their state in modules and optimizers, which are looked at otherwise.
"""

from collections.abc import Iterator
from functools import partial
from types import CodeType, FunctionType, MethodType
from typing import Any

from gobrrr.timing.state.reach import globals_named
from gobrrr.treat.places import Place, entries, variable


def names_of(step: object) -> list[Place]:
    """Each place once."""
    function = _method_of(step)
    if function is None:
        return []
    package = _package(function)
    found: dict[tuple[int, object], Place] = {}
    ahead, seen = [function], set[tuple[int, int]]()
    while ahead:
        function = ahead.pop()
        key = id(function.__func__), id(function.__self__)
        if key in seen or _package(function) != package:
            continue
        seen.add(key)
        words = set(_words(function.__func__.__code__))
        ahead += _methods(function.__self__, words)
        for place in _places(function, words):
            found.setdefault(place.where, place)
            value = place.find()
            ahead += filter(None, [_method_of(value)])
            ahead += _methods(value, words)
    return list(found.values())


class Nobody:
    """Whose method a plain function is."""


def _method_of(thing: object) -> MethodType | None:
    """Of a function, a method, or an object that can be called; None of what Python does not see."""
    if isinstance(thing, partial):
        return _method_of(thing.func)
    if isinstance(thing, FunctionType):
        return MethodType(thing, Nobody)
    if isinstance(thing, MethodType):
        return thing if isinstance(thing.__func__, FunctionType) else None
    return next(iter(_methods(thing, {"__call__"})), None)


def _package(method: MethodType) -> str:
    return str(method.__func__.__module__).partition(".")[0]


def _words(code: CodeType) -> Iterator[str]:
    """Globals and attributes that it names, and those of functions inside it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _words(constant)


def _places(method: MethodType, words: set[str]) -> Iterator[Place]:
    function: Any = method.__func__
    own = getattr(method.__self__, "__dict__", {})
    yield from map(variable, function.__closure__ or ())
    yield from entries(function.__globals__, globals_named(function) & function.__globals__.keys())
    if isinstance(own, dict):  # and not that of a class
        yield from entries(own, words & own.keys())


def _methods(owner: object, words: set[str]) -> list[MethodType]:
    """Those that are named. Models and optimizers are looked at otherwise."""
    from torch.nn import Module
    from torch.optim import Optimizer

    if isinstance(owner, Module | Optimizer | type):
        return []
    named = {word: getattr(type(owner), word, None) for word in words}
    return [MethodType(one, owner) for one in named.values() if isinstance(one, FunctionType)]
