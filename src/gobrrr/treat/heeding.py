"""A captured step in the hands of a program: what it may change between two steps, and what it may not.

A graph has its numbers from when it was captured, and its memory too. What a program sets in another place is put where
the graph reads it: rates that are numbers now, another batch under the same name, gradients that were set to None. What
cannot be put there ends the graph, with a warning, and the step runs as it is: other settings of an optimizer, for they
are in its kernels, as is a model's mode; an optimizer that has loaded, or weights that lie elsewhere now, for the graph
would go on with the old ones; and numbers or words that the step reads.
"""

import warnings
from collections.abc import Iterator
from functools import partial
from types import FunctionType, MethodType
from typing import Any

from gobrrr.timing.state.reach import globals_named
from gobrrr.treat.capture import Captured, Gradient
from gobrrr.treat.optimizers import Rates, other_settings
from gobrrr.treat.places import Place, entries, variable
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import graphless
from gobrrr.workload import Step

KEPT_BYTES = 1 << 20
"""Of what a step returns, up to which it is copied out of the graph's memory: losses, which programs collect. What is
larger is overwritten by the next step."""


def heeding(subject: Subject, graph: Captured) -> Step:
    """A step that replays as long as it would compute the same."""
    rates = [Rates(optimizer) for optimizer in subject.optimizers]
    captured, weights = settings(subject), Weights(subject)
    names, gradients = Names(subject.origin, graph), [one for one in graph.gradients if one.left is not None]

    def step() -> Any:
        for rate in rates:
            rate.heed()
        if settings(subject) != captured or weights.moved() or not names.heeded():
            return _left(subject)
        for one in gradients:
            before_replay(one)
        result = graph.replay()
        for one in gradients:
            if one.parameter.grad is not one.left:
                one.parameter.grad = one.left
        return copied(result)

    return step


def _left(subject: Subject) -> Any:
    subject.end(len(graphless(subject.plan)))
    warnings.warn(
        "something that a captured step has read is another now, or lies elsewhere: it runs without its graph from now "
        "on. Set and load before gobrrr.apply(...).step(step), or call that again",
        stacklevel=4,
    )
    return subject.run()


def before_replay(one: Gradient) -> None:
    """What is added to has to begin as the program has left it."""
    there = one.parameter.grad
    if one.added and one.left is not None and there is not one.left:
        if there is None:
            one.left.zero_()
        else:
            one.left.copy_(there)


def copied(result: Any) -> Any:
    """Small tensors out of the graph's memory."""
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Tensor, lambda one: one.clone() if one.nbytes <= KEPT_BYTES else one, result)


def settings(subject: Subject) -> list[object]:
    """What is in the kernels of a captured step, but for its rates. Groups of parameters are known by what they are:
    an optimizer that has loaded has others.
    """
    groups = [group for optimizer in subject.optimizers for group in optimizer.param_groups]
    trained = [parameter.requires_grad for group in groups for parameter in group["params"]]
    others = [one for optimizer in subject.optimizers for one in other_settings(optimizer)]
    return [*map(id, groups), *others, *trained, *(model.training for model in subject.models.values())]


class Weights:
    """Of all models, parameters and buffers, and where they lie."""

    def __init__(self, subject: Subject) -> None:
        modules = {id(one): one for model in subject.models.values() for one in model.modules()}.values()
        held = [entries for one in modules for entries in (one._parameters, one._buffers)]  # noqa: SLF001 (no walk each time)
        self.places = [
            (entries, name, tensor, tensor.data_ptr())
            for entries in held
            for name, tensor in entries.items()
            if tensor is not None
        ]

    def moved(self) -> bool:
        return any(
            entries.get(name) is not tensor or tensor.data_ptr() != pointer
            for entries, name, tensor, pointer in self.places
        )


class Names:
    """That the step itself reads: variables, and attributes of the object that it is a method of."""

    def __init__(self, step: object, graph: Captured) -> None:
        own = {place.where for place, _ in graph.bound}
        self.made = {id(tensor) for _, tensor in graph.bound}
        self.given = [(place, place.find(), place.where in own) for place in names_of(step)]

    def heeded(self) -> bool:
        """Whether all mean what they meant, by now."""
        return all(self._is_heeded(*one) for one in self.given)

    def _is_heeded(self, place: Place, meant: object, is_own: bool) -> bool:  # noqa: FBT001 (one of three together)
        means = place.find()
        if means is meant or (is_own and id(means) in self.made):
            return True
        return not is_own and (poured(meant, means) or _is_same(meant, means))


def names_of(step: object) -> Iterator[Place]:
    if isinstance(step, partial):
        yield from names_of(step.func)
    elif isinstance(step, MethodType):
        yield from names_of(step.__func__)
        yield from entries(getattr(step.__self__, "__dict__", {}))
    elif isinstance(step, FunctionType):
        yield from map(variable, step.__closure__ or ())
        named = globals_named(step)
        yield from entries(step.__globals__, [name for name in named if name in step.__globals__])


def poured(into: object, other: object) -> bool:
    """The numbers of one batch into the tensors of another, if they are alike in all but these."""
    from torch import Tensor
    from torch.utils._pytree import tree_flatten

    (to, shape), (found, other_shape) = tree_flatten(into), tree_flatten(other)
    if shape != other_shape or not all(isinstance(one, Tensor) for one in (*to, *found)) or not to:
        return False
    pairs = list(zip(to, found, strict=True))
    if any((a.shape, a.dtype, a.requires_grad) != (b.shape, b.dtype, b.requires_grad) for a, b in pairs):
        return False
    for a, b in pairs:
        a.copy_(b, non_blocking=True)
    return True


def _is_same(one: object, other: object) -> bool:
    """Numbers and words that are equal; another object of any other kind is another."""
    return isinstance(one, bool | int | float | str | None) and type(one) is type(other) and one == other
