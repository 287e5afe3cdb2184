"""Results of ops on fake tensors that torch finds by decompositions in Python: 2 to 19 ms for what a line says.

Each takes the op's arguments and returns what it would, or None where that is not plain: the long way then decides, and
complains where operands do not fit.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

_ATEN = torch.ops.aten


def _steps(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[dim + 1 :]) for dim in range(len(shape)))


def _is_contiguous(tensor: Tensor) -> bool:
    """To the letter: a dimension of one may have any stride, which results then keep. On a CPU, where all is counted
    that has no device.
    """
    is_plain = tensor.device.type == "cpu" and tensor.layout is torch.strided
    return is_plain and tensor.numel() > 0 and tensor.stride() == _steps(tensor.shape)


def _is_dense(tensor: Tensor) -> bool:
    if _is_contiguous(tensor):
        return True
    is_image = tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.dim() == 4
    return is_image and min(tensor.shape) > 1 and tensor.is_contiguous(memory_format=torch.channels_last)


def _batch_norm(image: Tensor, *parts: Any) -> tuple[Tensor, ...] | None:
    """With running statistics. Others change them, and return their own."""
    weight, bias, mean, variance, training, *_ = parts
    channels = [part for part in (weight, bias, mean, variance) if part is not None]
    if training or mean is None or variance is None or image.dim() < 2 or not _is_dense(image):
        return None
    if any(part.shape != image.shape[1:2] for part in channels):
        return None
    return torch.empty_like(image), image.new_empty(0), image.new_empty(0)


def _layer_norm(
    rows: Tensor, shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, _: float
) -> tuple[Tensor, ...] | None:
    kept = rows.dim() - len(shape)
    sizes = {tuple(part.shape) for part in (weight, bias) if part is not None}
    if kept < 0 or tuple(rows.shape[kept:]) != tuple(shape) or sizes - {tuple(shape)} or not shape:
        return None
    if not _is_contiguous(rows) or not rows.is_floating_point():
        return None
    statistics = (*rows.shape[:kept], *(1 for _ in shape))
    return torch.empty_like(rows), rows.new_empty(statistics), rows.new_empty(statistics)


def _addmm(bias: Tensor, one: Tensor, other: Tensor, **factors: float) -> Tensor | None:
    if one.dim() != 2 or other.dim() != 2 or one.shape[1] != other.shape[0] or factors:
        return None
    m, n = one.shape[0], other.shape[1]
    if bias.shape not in ((n,), (m, n)) or not bias.dtype == one.dtype == other.dtype or one.device.type != "cpu":
        return None
    return one.new_empty(m, n)


def _view(tensor: Tensor, size: Sequence[int]) -> Tensor | None:
    if not _is_contiguous(tensor):
        return None
    known = prod(one for one in size if one != -1)
    shape = [tensor.numel() // known if one == -1 and known else one for one in size]
    if list(size).count(-1) > 1 or min(shape, default=1) < 0 or prod(shape) != tensor.numel():
        return None
    return tensor.as_strided(shape, _steps(shape), tensor.storage_offset())


def _to_copy(tensor: Tensor, *, dtype: torch.dtype | None = None, **others: Any) -> Tensor | None:
    if dtype is None or others or not _is_dense(tensor):
        return None
    return torch.empty_like(tensor, dtype=dtype)


SHORTCUTS: dict[Any, Callable[..., Any]] = {
    _ATEN.native_batch_norm.default: _batch_norm,
    _ATEN.native_layer_norm.default: _layer_norm,
    _ATEN.addmm.default: _addmm,
    _ATEN.view.default: _view,
    _ATEN._unsafe_view.default: _view,  # noqa: SLF001 (an op's name)
    _ATEN._to_copy.default: _to_copy,  # noqa: SLF001
}
