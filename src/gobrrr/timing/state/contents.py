"""Contents: the bytes of tensors, copied once per storage and written back into the same storage."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gobrrr import units
from gobrrr.errors import Missing
from gobrrr.machine.cpu_state import free_host_bytes
from gobrrr.machine.memory import SHARE_OF_FREE

if TYPE_CHECKING:
    import torch

SHARE_OF_HOST = 0.9
"""Of the host's free memory, the last resort: past that the kernel would end somebody's program, and not say so."""


@dataclass(frozen=True, slots=True)
class Stretch:
    """Bytes of one storage that tensors of the step lie in."""

    storage: "torch.UntypedStorage"
    start: int
    stop: int

    @classmethod
    def of(cls, tensor: "torch.Tensor") -> "Stretch":
        storage, first = tensor.untyped_storage(), int(tensor.storage_offset())
        if tensor.numel() == 0:
            return cls(storage, 0, 0)
        last = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
        size = tensor.element_size()
        return cls(storage, first * size, min((last + 1) * size, storage.nbytes()))

    def bytes(self) -> "torch.Tensor":
        """A tensor over them of its own: to write through it touches nobody's version counter or graph."""
        import torch

        empty = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return empty.set_(self.storage, self.start, (self.stop - self.start,), (1,))

    def joined(self, other: "Stretch") -> "Stretch":
        return Stretch(self.storage, min(self.start, other.start), max(self.stop, other.stop))


@dataclass(frozen=True, slots=True)
class Copy:
    stretch: Stretch
    content: "torch.Tensor"

    def put_back(self) -> None:
        if self.stretch.storage.nbytes() < self.stretch.stop:
            self.stretch.storage.resize_(self.stretch.stop)
        self.stretch.bytes().copy_(self.content)


def storage_id(storage: "torch.UntypedStorage") -> int:
    """Two tensors share memory if they share this."""
    return int(storage._cdata)  # noqa: SLF001 (no public name)


def stretches(tensors: Iterable["torch.Tensor"]) -> list[Stretch]:
    """One for each storage, from the first byte that a tensor uses to the last."""
    found: dict[int, Stretch] = {}
    for stretch in map(Stretch.of, tensors):
        identity = storage_id(stretch.storage)
        if stretch.start < stretch.stop:
            found[identity] = stretch.joined(found.get(identity, stretch))
    return list(found.values())


def copied(stretches: list[Stretch], device: "torch.device") -> list[Copy]:
    """Of this device's: beside the originals where half of what is free takes them, else on the host."""
    import torch

    host = torch.device("cpu")
    needed = sum(stretch.stop - stretch.start for stretch in stretches)
    if device.type != "cpu" and needed <= SHARE_OF_FREE * free_bytes(device):
        try:
            return copies(stretches, device)
        except torch.OutOfMemoryError:  # free, but in pieces
            pass
    if needed > SHARE_OF_HOST * free_bytes(host):
        raise _no_room(needed)
    try:
        return copies(stretches, host)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        raise _no_room(needed) from None


def copies(stretches: list[Stretch], device: "torch.device") -> list[Copy]:
    return [Copy(stretch, stretch.bytes().to(device, copy=True)) for stretch in stretches]


def free_bytes(device: "torch.device") -> float:
    """What the driver has left and what torch holds without using it; none where nobody tells."""
    import torch

    if device.type == "cpu":
        free = free_host_bytes()
        return float("inf") if free is None else free
    if device.type != "cuda":
        return 0
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def _no_room(needed: int) -> Missing:
    return Missing(
        f"keeping a copy of what the step changes takes {units.capacity(needed)} of memory, more than is free: "
        "free some, or make the model smaller"
    )
