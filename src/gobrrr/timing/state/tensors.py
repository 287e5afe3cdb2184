"""Tensors: their contents first, then what each of them points to."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gobrrr.errors import UsageError
from gobrrr.timing.state.contents import Copy, Stretch, copied, storage_id, stretches
from gobrrr.timing.state.reach import is_wrapper

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Tensors:
    """Those of one device."""

    copies: tuple[Copy, ...]
    others: tuple["_Other", ...]
    handles: tuple["_Handle", ...]

    @property
    def copied_bytes(self) -> int:
        return sum(copy.content.numel() for copy in self.copies)

    @property
    def device_bytes(self) -> int:
        return sum(copy.content.numel() for copy in self.copies if copy.content.device.type != "cpu")

    def put_back(self) -> None:
        import torch

        contents: tuple[Copy | _Other, ...] = (*self.copies, *self.others)
        with torch.no_grad(), _alone(copy.stretch for copy in self.copies):
            for content in contents:
                content.put_back()
            for handle in self.handles:
                handle.put_back_data()
            for handle in self.handles:  # a gradient must fit its parameter, so both have their data by now
                handle.put_back_leaf()


def remembered_tensors(things: Iterable[object]) -> list[Tensors]:
    """The host's first."""
    import torch

    by_device: defaultdict[torch.device, list[torch.Tensor]] = defaultdict(list, {torch.device("cpu"): []})
    for thing in things:
        if isinstance(thing, torch.Tensor):
            by_device[thing.device].append(thing)
    return [_remembered(device, tensors) for device, tensors in by_device.items()]


def _remembered(device: "torch.device", tensors: list["torch.Tensor"]) -> Tensors:
    import torch
    from torch.nn.parameter import is_lazy

    if any(map(is_lazy, tensors)):
        raise UsageError("the model has parameters without a shape yet: run it once before")
    in_storages = stretches(tensor for tensor in tensors if _is_plain(tensor))
    with torch.no_grad(), _alone(in_storages):
        return Tensors(
            tuple(copied(in_storages, device)),
            tuple(_Other(tensor, tensor.detach().clone()) for tensor in tensors if _is_other(tensor)),
            tuple(_Handle.of(tensor) for tensor in tensors),
        )


@dataclass(frozen=True, slots=True)
class _Other:
    """A sparse, nested or opaque tensor: it has no bytes in a row, but knows how to copy itself."""

    tensor: "torch.Tensor"
    content: "torch.Tensor"

    def put_back(self) -> None:
        self.tensor.copy_(self.content)


@dataclass(frozen=True, slots=True)
class _Handle:
    """What a tensor says about itself: where its data lies, whether it wants a gradient, and which it has."""

    tensor: "torch.Tensor"
    alias: "torch.Tensor | None"
    """Lies where the tensor lay: a step may give a parameter other data."""
    is_leaf: bool
    requires_grad: bool
    grad: "torch.Tensor | None"

    @classmethod
    def of(cls, tensor: "torch.Tensor") -> "_Handle":
        alias = tensor.detach() if _is_plain(tensor) else None
        grad = tensor.grad if tensor.is_leaf else None
        return cls(tensor, alias, tensor.is_leaf, tensor.requires_grad, grad)

    def put_back_data(self) -> None:
        if self.alias is not None and _place(self.tensor) != _place(self.alias):
            self.tensor.data = self.alias

    def put_back_leaf(self) -> None:
        if self.is_leaf and not self.tensor.is_leaf and not self.tensor._is_view():  # noqa: SLF001 (no public name)
            self.tensor.detach_()
        if not self.is_leaf or not self.tensor.is_leaf:  # torch detaches no view that autograd has taken over
            return
        if self.tensor.requires_grad != self.requires_grad:
            self.tensor.requires_grad_(self.requires_grad)
        if self.tensor.grad is not self.grad:
            self.tensor.grad = self.grad


def _place(tensor: "torch.Tensor") -> tuple[object, ...]:
    storage, offset = storage_id(tensor.untyped_storage()), tensor.storage_offset()
    return storage, offset, tensor.shape, tensor.stride(), tensor.dtype, tensor.device


def _is_plain(tensor: "torch.Tensor") -> bool:
    """Lies in a storage that has bytes."""
    return _is_strided(tensor) and not is_wrapper(tensor) and tensor.untyped_storage().device.type != "meta"


def _is_other(tensor: "torch.Tensor") -> bool:
    return not _is_strided(tensor) and not is_wrapper(tensor)


def _is_strided(tensor: "torch.Tensor") -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested


@contextmanager
def _alone(stretches: Iterable[Stretch]) -> Iterator[None]:
    """While bytes are copied no kernel of any stream may still write them, nor begin to: a step may have streams of its
    own, which do not wait for ours.
    """
    import torch

    devices = {stretch.storage.device for stretch in stretches} - {torch.device("cpu")}
    for device in devices:
        torch.accelerator.synchronize(device)
    yield
    for device in devices:
        torch.accelerator.synchronize(device)
