"""A captured step in the hands of a program: what it may change between two steps, and what it may not.

A graph has its numbers from when it was captured, and its memory too. What a program has in another place by now is put
where the graph reads it: rates that are numbers, the batch under a name of the step, gradients that were set to None.
What cannot be put there ends the graph, with a warning, and the step runs as it is: other settings of an optimizer, for
they are in its kernels, as are the modes of modules; an optimizer that has loaded, and weights that lie elsewhere, for
the graph would go on with the old ones; and whatever else the step reads under a name.
"""

import warnings
from collections.abc import Sequence
from typing import Any

from gobrrr.treat.capture import Captured, Gradient
from gobrrr.treat.compiling import is_ours
from gobrrr.treat.names import names_of
from gobrrr.treat.optimizers import Rates, other_settings
from gobrrr.treat.places import Place
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Unfit, graphless
from gobrrr.workload import Step

KEPT_BYTES = 1 << 20
"""Of what a step returns, up to which it is copied out of the graph's memory: losses, which programs collect. What is
larger is overwritten by the next step."""


def heeding(subject: Subject, graph: Captured, rates: Sequence[Rates]) -> Step:
    """A step that replays as long as it would compute the same."""
    import torch

    captured, modules, words = settings(subject), Modules(subject, graph), Words(subject, graph)
    gradients = [one for one in graph.gradients if one.left is not None]

    def is_heeded() -> bool:
        for rate in rates:
            rate.heed()
        return same(settings(subject), captured) and not modules.differ() and not words.differ() and poured(graph)

    def replayed() -> Any:
        begin(gradients)
        result = graph.replay()
        for one in gradients:
            if one.parameter.grad is not one.left:
                one.parameter.grad = one.left
        for place, computed in graph.bound:
            if place.find() is not computed:
                place.bind(computed)
        return copied(result)

    def step() -> Any:
        with torch.no_grad():
            if is_heeded():
                return replayed()
        return ended(subject)

    return step


def ended(subject: Subject) -> Any:
    """The graph is, for good; gives what the step does without."""
    if is_ours():
        raise Unfit("something that the captured step has read is another in each step")
    subject.end(len(graphless(subject.plan)))
    warnings.warn(
        "something that a captured step has read is another now, or lies elsewhere: it runs without its graph from now "
        "on. Set and load before gobrrr.apply(...).step(step), or call that again",
        stacklevel=4,
    )
    return subject.run()


def poured(graph: Captured) -> bool:
    """What the program has under each name into what the graph reads, if all is alike but for the numbers."""
    import torch
    from torch.utils._pytree import tree_flatten

    ours: list[torch.Tensor] = []
    theirs: list[torch.Tensor] = []
    for place, own in graph.inputs:
        (to, shape), (found, other_shape) = tree_flatten(own), tree_flatten(place.find())
        if shape != other_shape or not all(map(_are_alike, to, found)):
            return False
        ours += to
        theirs += found
    if ours:
        torch._foreach_copy_(ours, theirs, non_blocking=True)
    return True


def _are_alike(one: Any, other: Any) -> bool:
    from torch import Tensor

    if not isinstance(other, Tensor):
        return False
    return bool((one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device))


def begin(gradients: list[Gradient]) -> None:
    """What is added to has to begin as the program has left it."""
    import torch

    moved = [(one.left, one.parameter.grad) for one in gradients if one.added and one.parameter.grad is not one.left]
    gone = [left for left, there in moved if left is not None and there is None]
    if gone:
        torch._foreach_zero_(gone)
    for left, there in moved:
        if left is not None and there is not None:
            left.copy_(there)


def copied(result: Any) -> Any:
    """Small tensors out of the graph's memory."""
    from torch import Tensor
    from torch.utils._pytree import tree_map_only

    return tree_map_only(Tensor, lambda one: one.clone() if one.nbytes <= KEPT_BYTES else one, result)


def settings(subject: Subject) -> list[object]:
    """Of optimizers, what is in the kernels of a captured step, but for its rates. Groups of parameters are known by
    what they are: an optimizer that has loaded has others.
    """
    groups = [group for optimizer in subject.optimizers for group in optimizer.param_groups]
    others = [one for optimizer in subject.optimizers for one in other_settings(optimizer)]
    states = [one for optimizer in subject.optimizers for one in (optimizer.state, len(optimizer.state))]
    trained = [parameter.requires_grad for group in groups for parameter in group["params"]]
    return [*groups, *states, *others, *trained]


def same(settings: list[object], captured: list[object]) -> bool:
    """Dicts by what they are, all else by what it says."""
    return len(settings) == len(captured) and all(
        one is other or (not isinstance(one, dict) and one == other)
        for one, other in zip(settings, captured, strict=True)
    )


class Modules:
    """Of all models: their parts, their modes, and where their tensors lie. But for what the step itself puts there."""

    def __init__(self, subject: Subject, graph: Captured) -> None:
        import torch

        own = {place.where for place, _ in graph.bound}
        all_ = {id(one): one for model in subject.models.values() for one in model.modules()}.values()
        self.modes = [(module, module.training) for module in all_]
        held = [one for module in all_ for one in (module._modules, module._parameters, module._buffers)]  # noqa: SLF001
        self.parts: list[tuple[Any, str, Any]] = [
            (part, name, value) for part in held for name, value in part.items() if (id(part), name) not in own
        ]
        held_tensors = [value for _, _, value in self.parts if isinstance(value, torch.Tensor)]
        tensors = {id(one): one for one in (*held_tensors, *subject.parameters().values()) if _has_place(one)}.values()
        self.tensors = [(one, one.data_ptr(), one.requires_grad) for one in tensors]

    def differ(self) -> bool:
        return (
            any(part.get(name) is not value for part, name, value in self.parts)
            or any(module.training is not mode for module, mode in self.modes)
            or any(one.data_ptr() != place or one.requires_grad is not wants for one, place, wants in self.tensors)
        )


def _has_place(tensor: Any) -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested


class Words:
    """Whatever else the step reads under a name: numbers and words by what they say, all else by what it is."""

    def __init__(self, subject: Subject, graph: Captured) -> None:
        given = {place.where for place, _ in graph.inputs}
        self.made = {place.where: computed for place, computed in graph.bound}
        self.meant = [(place, place.find()) for place in names_of(subject.origin) if place.where not in given]

    def differ(self) -> bool:
        return any(self._differs(place, meant, place.find()) for place, meant in self.meant)

    def _differs(self, place: Place, meant: object, means: object) -> bool:
        """What the step puts under a name may be gone by now, and is put there again."""
        if means is meant or (place.where in self.made and (means is None or means is self.made[place.where])):
            return False
        return not (isinstance(meant, bool | int | float | str) and type(meant) is type(means) and meant == means)
