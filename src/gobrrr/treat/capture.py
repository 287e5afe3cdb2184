"""Capturing a whole step in a CUDA graph, so that the host asks for it by one call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.state import preserved
from gobrrr.timing.state.reach import reached
from gobrrr.treat.edit import attribute, swap_off, swap_on
from gobrrr.treat.places import Place, bound, rebound
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
    bound: "tuple[tuple[Place, torch.Tensor], ...]"
    """Where the step puts what it computes, and what a replay computes there."""


def captured(subject: Subject) -> Captured:
    """The subject's step as it is treated now. What its warm-up changed is put back.

    No garbage is collected meanwhile: it may hold memory of the device, which cannot be freed during a capture.
    """
    import torch

    device = torch.device(subject.device)
    parameters = [parameter for model in subject.models.values() for parameter in model.parameters()]
    named = bound(reached(subject.origin))
    with preserved(subject.origin), torch.cuda.device(device):
        aside = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        aside.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(aside):
            for _ in range(WARM_UP):
                subject.run()
        torch.cuda.current_stream(device).wait_stream(aside)
        torch.cuda.synchronize(device)
        alive = [place.find() for place, _ in named]  # a step that reads what it puts there is captured reading these
        before = [parameter.grad for parameter in parameters]
        graph = torch.cuda.CUDAGraph()
        with unnoticed(), without_garbage_collection(), torch.cuda.graph(graph, stream=aside):
            result = subject.run()
        gradients = tuple(
            Gradient(parameter, parameter.grad, parameter.grad is not None and parameter.grad is there)
            for parameter, there in zip(parameters, before, strict=True)
        )
        renamed = tuple(rebound(named))

    def replay(_alive: object = alive) -> Any:
        graph.replay()
        return result

    return Captured(replay, gradients, renamed)


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
