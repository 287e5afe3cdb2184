"""How an op takes part in fusion: told by its class, its name where a class is too coarse, and its shapes."""

from enum import Enum, auto
from math import prod

from gobrrr.work.op import Op, OpClass, TensorRef
from gobrrr.work.registry import canonical

PERSISTENT_ROW = 1 << 18
"""Elements of a row that a kernel keeps on the chip between reducing it and using the result.

A megabyte of fp32: the largest vocabularies fit, and so much a cluster of multiprocessors shares or a CPU core's own
cache holds. A longer row, such as a whole gradient whose norm is taken, has to be read again.
"""


class Kind(Enum):
    STREAMS = auto()
    """Element by element or row by row: joins what is before it, and is joined by what follows."""
    ENDS = auto()
    """Gathers from all rows: joins what is before it, but whoever reads its result waits for the last row."""
    PICKS = auto()
    """Reads anywhere in what is before it, which has to be complete; streams from there on."""
    STARTS = auto()
    """A contraction, or a norm over the batch: needs whole operands; what follows joins it as its epilogue."""
    ALONE = auto()
    """Fuses with nothing we know of: a sort, a transform, a collective, an op of unknown work."""


_BATCH_NORMS = "batch_norm"
_PICKING = frozenset(
    "embedding index _unsafe_index gather index_select take masked_select take_along_dim repeat_interleave one_hot "
    "_embedding_bag _embedding_bag_forward_only searchsorted bucketize grid_sampler_2d grid_sampler_3d".split()
)
_ROW_PICKING = frozenset({"nll_loss_backward", "nll_loss2d_backward"})
_REDUCING_LOSSES = ("loss", "binary_cross_entropy", "kl_div")


def kind(op: Op) -> Kind:
    if op.work is None:
        return Kind.ALONE
    match op.cls:
        case OpClass.CONTRACTION:
            return Kind.STARTS
        case OpClass.NORMALIZATION:
            return _normalization(op)
        case OpClass.ELEMENTWISE | OpClass.OPTIMIZER:
            return Kind.ENDS if _is_reduction(op) and not _is_by_rows(op) and _is_loss(op) else Kind.STREAMS
        case OpClass.MOVEMENT:
            return Kind.STREAMS
        case OpClass.INDEXING:
            return _indexing(canonical(op.name))
        case _:
            return Kind.ALONE


def _normalization(op: Op) -> Kind:
    """A batch norm in training needs a channel's mean over the batch before its first result; elsewhere it scales."""
    if _BATCH_NORMS in op.name:
        return Kind.STARTS if _has_statistics(op) else Kind.STREAMS
    return Kind.ENDS if _is_reduction(op) and not _is_by_rows(op) else Kind.STREAMS


def _has_statistics(op: Op) -> bool:
    """In inference torch returns empty tensors in their place."""
    return "no_training" not in op.name and all(ref.numel for ref in op.outputs[1:3])


def _indexing(name: str) -> Kind:
    """Gathers pick, a loss's gradient is written row by row, and scatters add from everywhere."""
    if name in _PICKING:
        return Kind.PICKS
    return Kind.STREAMS if name in _ROW_PICKING else Kind.ENDS


def _is_loss(op: Op) -> bool:
    name = canonical(op.name)
    return any(word in name for word in _REDUCING_LOSSES)


def _is_reduction(op: Op) -> bool:
    return bool(op.outputs) and op.outputs[0].numel < _largest(op).numel


def _is_by_rows(op: Op) -> bool:
    """Along the last dimensions: what is left of the shape is how it began, and a row stays on the chip.

    Shapes are all there is to see. A square matrix reduced along its first dimension looks the same and passes. Many
    tensors reduced at once, as for the norm of all gradients, are reduced for a result that depends on all of them.
    """
    if "_foreach_" in op.name:
        return False
    source, result = _largest(op), op.outputs[0]
    left = _without_trailing_ones(result.shape)
    row = prod(source.shape[len(left) :])
    return source.shape[: len(left)] == left and row <= PERSISTENT_ROW


def _without_trailing_ones(shape: tuple[int, ...]) -> tuple[int, ...]:
    end = len(shape)
    while end and shape[end - 1] == 1:
        end -= 1
    return shape[:end]


def _largest(op: Op) -> TensorRef:
    return max((*op.inputs, *op.outputs), key=lambda ref: ref.numel)
