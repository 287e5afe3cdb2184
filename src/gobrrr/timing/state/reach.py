"""What a step reaches: everything that it could change, found by walking from one thing to what it refers to."""

import dis
import sys
from collections import UserDict, deque
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache, partial
from io import IOBase
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import Any

_INERT = (NoneType, bool, int, float, complex, str, bytes, type, ModuleType, CodeType)
"""Holds nothing that a step could change. Modules and classes are not searched: everything hangs on them."""

_TORCH_HOMES = ("torch.nn", "torch.optim", "torch.amp", "torch.cuda.amp")
"""Where torch keeps what belongs to the user. Its compilers, profilers and data loaders keep their own counsel."""

EMPTY = object()
"""Stands for no value where None is one."""


def reached(root: object) -> list[object]:
    """Everything that can be reached from here, each once, itself first."""
    found, todo = {id(root): root}, [root]
    while todo:
        for one in held(todo.pop()):
            if not isinstance(one, _INERT) and id(one) not in found:
                found[id(one)] = one
                todo.append(one)
    return list(found.values())


def beyond(things: Iterable[object]) -> tuple[str, ...]:
    """What among them nobody can put back, one phrase for each kind."""
    names = (_unrestorable(thing) for thing in things)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def is_open(thing: object) -> bool:
    """Has attributes that are the user's business; the standard library's and torch's inner objects are left alone."""
    import torch

    if isinstance(thing, FunctionType | partial | SimpleNamespace | UserDict | torch.Tensor | torch.nn.Module):
        return True
    return _is_open_home(type(thing).__module__)


@lru_cache(maxsize=4096)
def _is_open_home(home: str) -> bool:
    """By the name of the module alone: whoever remembered classes would keep alive what they hold."""
    if root_package(home) == "torch":
        return home.startswith(_TORCH_HOMES)
    return root_package(home) not in sys.stdlib_module_names


def root_package(module: str | None) -> str:
    return (module or "").partition(".")[0]


def globals_named(function: FunctionType) -> set[str]:
    """The globals that the user's code and the functions inside it read or write."""
    if root_package(function.__module__) in {"torch", *sys.stdlib_module_names}:
        return set()
    return _globals_of(function.__code__)


def slots(thing: object) -> Iterator[MemberDescriptorType]:
    for kind in type(thing).__mro__:
        if "__slots__" in vars(kind):
            yield from (value for value in vars(kind).values() if isinstance(value, MemberDescriptorType))


def value_or_empty(read: Callable[[], object]) -> object:
    """Of a closure's cell or of a slot: one that was never filled raises the one error or the other."""
    try:
        return read()
    except (ValueError, AttributeError):
        return EMPTY


def is_wrapper(tensor: Any) -> bool:
    """Made of other tensors, which the walk finds; of its own it has nothing."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def held(thing: object) -> Iterator[object]:
    """What this one refers to."""
    import torch

    if isinstance(thing, dict):
        yield from list(thing)
        yield from list(thing.values())
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from list(thing)
    elif isinstance(thing, FunctionType):
        yield from (thing.__closure__, thing.__defaults__, thing.__kwdefaults__)
        yield from (thing.__globals__.get(name) for name in globals_named(thing))
    elif isinstance(thing, MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, BuiltinMethodType):
        yield thing.__self__
    elif isinstance(thing, partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, CellType):
        yield value_or_empty(lambda: thing.cell_contents)
    elif isinstance(thing, torch.Tensor):
        yield from _held_by_tensor(thing)
    if is_open(thing):
        yield getattr(thing, "__dict__", None)
        yield from (value_or_empty(partial(slot.__get__, thing)) for slot in slots(thing))


def _held_by_tensor(tensor: Any) -> Iterator[object]:
    """A leaf's gradient, what is called once it is there, and the tensors that a wrapper is made of."""
    if tensor.is_leaf:
        yield tensor.grad
        yield getattr(tensor, "_post_accumulate_grad_hooks", None)
    if is_wrapper(tensor):
        yield from (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])


def _globals_of(code: CodeType) -> set[str]:
    own = {line.argval for line in dis.get_instructions(code) if line.opname.endswith("_GLOBAL")}
    return own.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


def _unrestorable(thing: object) -> str | None:
    if type(thing).__name__ == "CUDAGraph":
        return "the tensors of a CUDA graph"
    if is_open(thing) or isinstance(thing, IOBase) or not hasattr(type(thing), "__next__"):
        return None
    return f"what was drawn from a {type(thing).__name__.lstrip('_')}"
