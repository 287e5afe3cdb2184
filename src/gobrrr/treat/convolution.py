"""Convolutions as a step calls them, and what they take in either layout."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state import preserved
from gobrrr.treat import probe
from gobrrr.treat.stillness import idle_optimizers, uncompiled
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch


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


def convolutions(subject: Subject, sites: Iterable[str], *, trains: bool) -> Mapping[Convolution, int]:
    """How often a step calls these modules, by what decides their time."""
    found: Counter[Convolution] = Counter()
    with ExitStack() as stack:
        stack.enter_context(uncompiled(subject))
        for site in sites:
            stack.callback(subject.module(site).register_forward_pre_hook(partial(_note, found, trains=trains)).remove)
        stack.enter_context(preserved(subject.origin))
        stack.enter_context(idle_optimizers(subject))
        subject.run()
        return dict(found)  # the hooks' own is put back too


def _note(found: Counter[Convolution], module: Any, args: tuple[Any, ...], *, trains: bool) -> None:
    import torch

    if not args:
        return
    images, weight = args[0], module.weight
    kind = images.device.type
    one = Convolution(
        images=tuple(images.shape),
        weight=tuple(weight.shape),
        stride=module.stride,
        padding=module.padding,
        dilation=module.dilation,
        groups=module.groups,
        dtype=torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else images.dtype,
        wanted=(trains and images.requires_grad, trains and weight.requires_grad),
    )
    found[one] += 1


def seconds_by_layout(calls: Mapping[Convolution, int], device: str) -> tuple[float, float] | None:
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
def _seconds(call: Convolution, layout: "torch.memory_format", device: str, _modes: tuple[Any, ...]) -> float:
    return probe.device_seconds(partial(convolving, call, layout, device), device)


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
