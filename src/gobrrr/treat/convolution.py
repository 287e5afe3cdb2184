"""Convolutions and poolings as a step calls them, and what they take in either layout."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, Any, TypeVar

from gobrrr.timing.state import preserved
from gobrrr.treat import probe
from gobrrr.treat.stillness import idle_optimizers, uncompiled
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

_Call = TypeVar("_Call", bound="Convolution | Pooling")


@dataclass(frozen=True, slots=True)
class Convolution:
    """What of a call decides how long it takes."""

    images: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...] | str
    dilation: tuple[int, ...]
    groups: int
    dtype: "torch.dtype"
    wanted: tuple[bool, bool]
    """Gradients of images and weight."""


@dataclass(frozen=True, slots=True)
class Pooling:
    """On a CPU torch has quick kernels for it with the channels last alone."""

    images: tuple[int, ...]
    kind: str
    """As the module tells of itself."""
    dtype: "torch.dtype"
    wants: bool
    """A gradient."""
    module: Any = field(compare=False)


def convolutions(subject: Subject, sites: Iterable[str], *, trains: bool) -> Mapping[Convolution, int]:
    """How often a step calls these modules, by what decides their time."""
    return _noted(subject, map(subject.module, sites), partial(_convolution, trains=trains))


def poolings(subject: Subject, *, trains: bool) -> Mapping[Pooling, int]:
    from torch import nn

    kinds = nn.MaxPool2d, nn.AvgPool2d, nn.AdaptiveMaxPool2d, nn.AdaptiveAvgPool2d
    modules = [module for _, module in subject.modules() if isinstance(module, kinds)]
    return _noted(subject, modules, partial(_pooling, trains=trains))


def _noted(subject: Subject, modules: Iterable[Any], told: Callable[[Any, Any], _Call]) -> Mapping[_Call, int]:
    """How often a step calls these modules, by what is told of them and their images."""
    found: Counter[_Call] = Counter()

    def note(module: Any, args: tuple[Any, ...]) -> None:
        if args:
            found[told(module, args[0])] += 1

    with ExitStack() as stack:
        stack.enter_context(uncompiled(subject))
        for module in modules:
            stack.callback(module.register_forward_pre_hook(note).remove)
        stack.enter_context(preserved(subject.origin))
        stack.enter_context(idle_optimizers(subject))
        subject.run()
        return dict(found)  # the hooks' own is put back too


def _convolution(module: Any, images: "torch.Tensor", *, trains: bool) -> Convolution:
    import torch

    weight, kind = module.weight, images.device.type
    return Convolution(
        images=tuple(images.shape),
        weight=tuple(weight.shape),
        stride=module.stride,
        padding=module.padding,
        dilation=module.dilation,
        groups=module.groups,
        dtype=torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype,
        wanted=(trains and images.requires_grad, trains and weight.requires_grad),
    )


def _pooling(module: Any, images: "torch.Tensor", *, trains: bool) -> Pooling:
    return Pooling(tuple(images.shape), repr(module), images.dtype, trains and images.requires_grad, module)


def seconds_by_layout(calls: Mapping[_Call, int], device: str) -> tuple[float, float] | None:
    """Of all of them, forward and backward, with channels first and last; None where one cannot be made, or none is."""
    import torch

    formats, modes = (torch.contiguous_format, torch.channels_last), probe.modes()
    try:
        first_s, last_s = (
            sum(_seconds(call, layout, device, modes) * count for call, count in calls.items()) for layout in formats
        )
    except RuntimeError:
        return None
    return (first_s, last_s) if calls else None


@cache
def _seconds(
    call: "Convolution | Pooling", layout: "torch.memory_format", device: str, _modes: tuple[Any, ...]
) -> float:
    if isinstance(call, Convolution):
        return probe.device_seconds(partial(convolving, call, layout, device), device)
    return probe.device_seconds(partial(pooling, call, layout, device), device)


def pooling(call: Pooling, layout: "torch.memory_format", device: str) -> Callable[[], object]:
    """Such a call on random numbers in that layout, with the gradient if it is wanted."""
    import torch

    images = torch.randn(call.images, dtype=call.dtype, device=device).to(memory_format=layout)
    images.requires_grad_(call.wants)

    def run() -> object:
        found = call.module.forward(images)  # without its hooks
        found = found[0] if isinstance(found, tuple) else found  # the places beside it have no gradient
        return torch.autograd.grad(found, images, found.detach()) if call.wants else found

    return run


def convolving(call: Convolution, layout: "torch.memory_format", device: str) -> Callable[[], object]:
    """Such a call on random numbers in that layout, with the gradients that are wanted."""
    import torch

    images, weight = (
        torch.randn(size, dtype=call.dtype, device=device).to(memory_format=layout).requires_grad_(wanted)
        for size, wanted in zip((call.images, call.weight), call.wanted, strict=True)
    )
    leaves = [one for one in (images, weight) if one.requires_grad]

    def run() -> object:
        found = torch.conv2d(images, weight, None, call.stride, call.padding, call.dilation, call.groups)
        return torch.autograd.grad(found, leaves, found.detach()) if leaves else found

    return run
