"""The reference: a step's tensors in a wider type, as they are or shaken by what rounding does."""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.reach import reached
from gobrrr.treat.edit import attribute, swap_off, swap_on
from gobrrr.treat.samples import plain
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

SHAKE, SHAKE_HALF = 8, 0.5
"""Roundings of each number, as many ops leave them: what lies nearer than that to a turning is turned. Of types of two
bytes but one, to either side: eight would be six percent of all numbers in bf16, and excuse anything.
"""

MANY = 1_000_003
"""More than there are tensors: each has its own seed, and no other is shaken alike. A CPU looks at 32 bits of it."""


def widen(subject: Subject, wide: "torch.dtype", shake: int | None = None) -> bool:
    """Every floating tensor of more than one number that the step reaches, in that type unless it has a wider one; what
    shares memory still does. Whether any was narrower.
    """
    import torch

    tensors = [thing for thing in reached(subject.origin) if isinstance(thing, torch.Tensor)]
    found = [one for one in tensors if one.is_floating_point() and one.dim() and plain(one)]
    found = [one for one in found if one.itemsize <= wide.itemsize]
    narrower = any(one.itemsize < wide.itemsize for one in found)
    sharing: defaultdict[object, list[torch.Tensor]] = defaultdict(list)
    for tensor in found:
        sharing[_memory(tensor)].append(tensor)
    for number, sharers in enumerate(sharing.values()):
        if len(sharers) == 1:
            sharers[0].data = _widened(sharers[0].data, wide, shake, number)
            continue
        spans = [_span(tensor) for tensor in sharers]
        begin, end = min(first for first, _ in spans), max(last for _, last in spans)
        stretch = _widened(_stretch(sharers[0], begin, end), wide, shake, number)
        for tensor in sharers:
            tensor.data = stretch.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset() - begin)
    return narrower


@contextmanager
def without_autocast() -> Iterator[list[Any]]:
    """Nobody who asks for it gets it, and all who do are noted. It passes over fp64, and would undo fp32."""
    import torch

    switch: Any = torch.set_autocast_enabled
    on = [device for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)]
    asked: list[Any] = [*on]

    def stays_off(*device_and_whether: Any) -> None:
        *device, wanted = device_and_whether
        asked.extend([device] if wanted else ())
        switch(*device, False)  # noqa: FBT003 (torch's own)

    edits = swap_on([attribute(torch, "set_autocast_enabled", stays_off)])
    try:
        for device in on:
            switch(device, False)  # noqa: FBT003
        yield asked
    finally:
        swap_off(edits)
        for device in on:
            switch(device, True)  # noqa: FBT003


def _memory(tensor: "torch.Tensor") -> object:
    return tensor.untyped_storage().data_ptr(), tensor.device, tensor.dtype


def _span(tensor: "torch.Tensor") -> tuple[int, int]:
    """Of its storage, the elements from the first to behind the last."""
    first = int(tensor.storage_offset())
    sizes = zip(tensor.size(), tensor.stride(), strict=True)
    return first, first + (sum((size - 1) * stride for size, stride in sizes) + 1 if tensor.numel() else 0)


def _stretch(tensor: "torch.Tensor", begin: int, end: int) -> "torch.Tensor":
    """The numbers of the memory that it lies in, from one to another."""
    return tensor.new_empty(0).set_(tensor.untyped_storage(), begin, (end - begin,), (1,))


def _widened(tensor: "torch.Tensor", wide: "torch.dtype", shake: int | None, number: int) -> "torch.Tensor":
    import torch

    found = tensor.to(wide, copy=shake is not None)
    if shake is not None:
        rounding = (SHAKE if tensor.itemsize > 2 else SHAKE_HALF) * torch.finfo(tensor.dtype).eps
        generator = torch.Generator(tensor.device).manual_seed(shake * MANY + number)
        found *= 1 + rounding * torch.empty_like(found).normal_(generator=generator)
    return found
