"""Capturing a whole step in a CUDA graph, so that the host asks for it by one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.state import preserved
from gobrrr.timing.state.reach import reached
from gobrrr.treat.edit import attribute, swap_off, swap_on
from gobrrr.treat.names import names_of
from gobrrr.treat.places import Place, all_places, rebound
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

WARM_UP = 3
"""Steps on a stream of its own before: what is allocated or tuned once must not be captured."""


@dataclass(frozen=True, slots=True)
class Gradient:
    parameter: "torch.Tensor"
    left: "torch.Tensor | None"
    """What a replay leaves behind."""
    added: bool
    """Added to what was there, and not made anew."""


@dataclass(frozen=True, slots=True)
class Captured:
    replay: Callable[[], Any]
    gradients: "tuple[Gradient, ...]"
    """Of each parameter."""
    bound: tuple[tuple[Place, Any], ...]
    """Where the step puts what it computes, and what a replay computes there."""
    inputs: tuple[tuple[Place, Any], ...] = ()
    """Where the step finds what it is given, and what a replay reads: tensors of ours, alike."""


def captured(subject: Subject) -> Captured:
    """The subject's step as it is treated now. What its warm-up changed is put back.

    No garbage is collected meanwhile: it may hold memory of the device, which cannot be freed during a capture.
    """
    import torch

    device = torch.device(subject.device)
    parameters = list(subject.parameters().values())
    named = all_places(reached(subject.origin))
    with preserved(subject.origin), torch.cuda.device(device):
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            inputs = private_inputs(subject, device.type)
        try:
            with torch.cuda.stream(aside):
                for _ in range(WARM_UP):
                    subject.run()
            torch.cuda.current_stream(device).wait_stream(aside)
            torch.cuda.synchronize(device)
            alive = [place.find() for place, _ in named]  # a step that reads what it puts there is captured so
            before = [parameter.grad for parameter in parameters]
            graph = torch.cuda.CUDAGraph()
            with unnoticed(), without_garbage_collection(), torch.cuda.graph(graph, stream=aside):
                result = subject.run()
            gradients = tuple(
                Gradient(parameter, parameter.grad, parameter.grad is not None and parameter.grad is there)
                for parameter, there in zip(parameters, before, strict=True)
            )
        finally:
            for one in inputs:
                one.place.bind(one.theirs)
        renamed = tuple(rebound(named))

    def replay(_alive: object = alive) -> Any:
        graph.replay()
        return result

    return Captured(replay, gradients, renamed, tuple((one.place, one.ours) for one in inputs))


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """A name of the step that holds nothing but tensors, which the step only reads."""

    place: Place
    theirs: Any
    ours: Any
    """Alike, and bound there while the step is captured: a graph must not read, nor anybody write, where the program
    keeps its data.
    """
    copies: "tuple[torch.Tensor, ...]"
    """What stands in it, as long as the step only reads."""

    @classmethod
    def of(cls, place: Place, value: Any) -> "Input":
        from torch.utils._pytree import tree_leaves, tree_map

        ours = tree_map(lambda one: one.detach().clone(), value)
        return cls(place, value, ours, tuple(tree_leaves(ours)))


def private_inputs(subject: Subject, device: str) -> list[Input]:
    """All of them, seen in a step."""
    owners = (*subject.models.values(), *subject.optimizers)
    owned = {id(thing) for owner in owners for thing in reached(owner)}
    meant = [(place, place.find()) for place in names_of(subject.origin)]
    found = [Input.of(place, value) for place, value in meant if _is_given(value, device, owned)]
    for one in found:
        one.place.bind(one.ours)
    subject.run()
    only_read = [one for one in found if _is_only_read(one)]
    for one in found:
        if one not in only_read:
            one.place.bind(one.theirs)
    return only_read


def _is_given(value: object, device: str, owned: set[int]) -> bool:
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    leaves = tree_leaves(value)
    return bool(leaves) and all(
        isinstance(one, Tensor) and one.device.type == device and not one.requires_grad and id(one) not in owned
        for one in leaves
    )


def _is_only_read(one: Input) -> bool:
    """A step that has run since has left the name, what stands in it and its numbers alone. What it puts there may well
    have the numbers that were there: it is another tensor.
    """
    from torch.utils._pytree import tree_leaves

    now = tree_leaves(one.ours)
    if one.place.find() is not one.ours or list(map(id, now)) != list(map(id, one.copies)):
        return False
    pairs = zip(now, tree_leaves(one.theirs), strict=True)
    return all(not ours._version and ours.equal(theirs) for ours, theirs in pairs)  # noqa: SLF001 (torch documents it)


@contextmanager
def unnoticed() -> Iterator[None]:
    """A step must go the way that it goes when it runs, and some ask whether they are captured to go another.

    transformers builds a dense mask then, with which flash attention is lost. A step that reads no values decides from
    shapes alone, so what it decides when it runs holds; and one that reads values cannot be captured.
    """
    import torch

    edits = swap_on([attribute(torch.cuda, "is_current_stream_capturing", lambda: False)])
    try:
        yield
    finally:
        swap_off(edits)
