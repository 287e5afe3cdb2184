"""An Op: one dispatched call, with what it read and wrote, where it came from, and its Work."""

from dataclasses import dataclass
from enum import StrEnum
from math import prod
from typing import NamedTuple

from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.work import Work


class OpClass(StrEnum):
    """The classes of "Data Movement Is All You Need", and what else a step holds."""

    CONTRACTION = "contraction"
    NORMALIZATION = "normalization"
    ELEMENTWISE = "elementwise"
    MOVEMENT = "movement"
    INDEXING = "indexing"
    OPTIMIZER = "optimizer"
    COMMUNICATION = "communication"
    OTHER = "other"


class Phase(StrEnum):
    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER = "optimizer"
    OTHER = "other"


class CountedBy(StrEnum):
    """How far the Work of an op can be trusted."""

    FORMULA = "formula"
    DEFAULT = "default"
    """No formula of its own: all inputs read once, all outputs written once, and no FLOPs but torch's."""
    UNKNOWN = "unknown"
    """Nobody knows what it does; its Work is None, never zero."""


class TensorRef(NamedTuple):
    """A view of a storage. Two ops with a storage in common are joined by data flow."""

    storage: int | None
    offset: int
    shape: tuple[int, ...]
    stride: tuple[int, ...]
    dtype: str

    @property
    def numel(self) -> int:
        return prod(self.shape)

    @property
    def item_bytes(self) -> float:
        """Raises a KeyError for a type whose width nobody has listed: such an op is unknown."""
        return ITEM_BYTES[self.dtype]

    @property
    def span(self) -> int:
        """Elements from the first to the last one that the view touches, both included."""
        if self.numel == 0:
            return 0
        return 1 + sum((size - 1) * abs(step) for size, step in zip(self.shape, self.stride, strict=True))

    @property
    def unique(self) -> int:
        """Distinct elements: a stride-0 dimension repeats, and no view has more than its span.

        Exact for slices, transposes, expansions and dense sliding windows; an upper bound for windows that
        overlap and leave gaps at once.
        """
        if self.numel == 0:
            return 0
        stepping = (size for size, step in zip(self.shape, self.stride, strict=True) if step)
        return min(prod(stepping), self.span)

    @property
    def unique_bytes(self) -> float:
        return self.unique * self.item_bytes

    @property
    def nbytes(self) -> float:
        return self.numel * self.item_bytes


@dataclass(frozen=True, slots=True)
class Op:
    name: str
    """As dispatched, with its overload: `aten::add.Tensor`."""
    cls: OpClass
    phase: Phase
    module: str
    """Path of the module it ran in, led by the root's class: `Bert.encoder.layer.0.attention`."""
    source: str | None
    """`file.py:line` of the nearest frame outside torch; of a backward op, that of its forward op."""
    device: str
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    counted_by: CountedBy
    work: Work | None
    launches: bool
    """False for views, allocations and other calls that start no kernel."""
    recomputed: bool = False
    """A forward op that checkpointing runs again in the backward pass."""
