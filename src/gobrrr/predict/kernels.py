"""From an Op to the kernels that do it: which family of the model, with which shape."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from math import gcd
from typing import NamedTuple

from gobrrr.diagnose.residency import Traffic
from gobrrr.dtypes import ITEM_BYTES
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.attention import BACKWARD, Attention, attention
from gobrrr.predict.conv import Convolution, convolution, relaid
from gobrrr.predict.estimate import NOTHING, Estimate, memory_time
from gobrrr.predict.product import Product, product, streamed
from gobrrr.predict.spread import Family
from gobrrr.predict.stream import Stream, stream
from gobrrr.work.op import Op, OpClass, TensorRef
from gobrrr.work.registry import canonical
from gobrrr.work.work import Work


class Kernel(NamedTuple):
    """The predicted time of what one op, or one group of them, launches."""

    family: Family
    estimate: Estimate


NO_KERNEL = Kernel(Family.STREAM, NOTHING)


class Call(NamedTuple):
    """What of an op decides its time. The layers of a model repeat the same few."""

    name: str
    cls: OpClass
    inputs: tuple[TensorRef, ...]
    outputs: tuple[TensorRef, ...]
    modes: tuple[str, ...]
    flops: float
    flops_dense: float

    @classmethod
    def of(cls, op: Op) -> "Call":
        work = op.work or Work()
        return cls(
            canonical(op.name),
            op.cls,
            _placeless(op.inputs),
            _placeless(op.outputs),
            tuple(work.matrix),
            work.matrix_flops,
            work.flops_dense,
        )


def _placeless(refs: Sequence[TensorRef]) -> tuple[TensorRef, ...]:
    return tuple(TensorRef(None, 0, ref.shape, ref.stride, ref.dtype) for ref in refs)


def kernel(op: Op, traffic: Traffic, accelerator: Accelerator, *, compiled: bool = False) -> Kernel:
    """An op that launches nothing takes no time of the device. Compilers pad and lay out what libraries want."""
    if not op.launches:
        return NO_KERNEL
    return of_call(Call.of(op), traffic, accelerator, compiled)


@lru_cache(maxsize=1 << 15)
def of_call(call: Call, traffic: Traffic, accelerator: Accelerator, compiled: bool = False) -> Kernel:  # noqa: FBT001, FBT002 (the cache wants places)
    if call.cls is OpClass.CONTRACTION and call.modes and call.flops:
        return _contraction(call, traffic, accelerator, compiled=compiled)
    kind = _stream(call)
    one = stream(kind, traffic, accelerator, rows=_rows(call))
    return Kernel(kind.family, one + _group_norm(call, traffic, accelerator))


def _rows(call: Call) -> int:
    """A norm returns one mean for each; others reduce along the last dimension.

    A kernel that a compiler made may return several results as large as what it reads.
    """
    if not call.outputs or not call.outputs[0].shape:
        return 0
    if len(call.outputs) > 1 and call.outputs[1].numel < max((ref.numel for ref in call.inputs), default=0):
        return call.outputs[1].numel
    return call.outputs[0].numel // max(1, call.outputs[0].shape[-1])


# **** streams ****


_SPATIAL = ("pool", "upsample", "grid_sampler", "im2col", "col2im")


def _stream(call: Call) -> Stream:
    match call.cls:
        case OpClass.NORMALIZATION if "batch_norm" not in call.name:
            return Stream.COLUMNWISE if _reduces_columns(call) else Stream.ROWWISE
        case OpClass.INDEXING:
            return Stream.GATHER
        case OpClass.MOVEMENT if call.name == "cat":
            return Stream.GATHER
    if any(word in call.name for word in _SPATIAL):
        return Stream.STRIDED
    if _reorders(call):
        return Stream.STRIDED
    return Stream.SINGLY if _repeats(call) else Stream.POINTWISE


def _reduces_columns(call: Call) -> bool:
    """The last dimension is left of what is reduced, or a norm's backward also sums over all rows."""
    if call.name.endswith("norm_backward"):
        return True
    whole, result = (max(refs, key=lambda ref: ref.numel, default=None) for refs in (call.inputs, call.outputs))
    if whole is None or result is None or not result.shape or result.numel == whole.numel:
        return False
    return result.numel > 1 and result.shape[-1] == whole.shape[-1]


def _group_norm(call: Call, traffic: Traffic, accelerator: Accelerator) -> Estimate:
    """Over groups of channels it reads once for the statistics and once more for the result.

    Where channels lie last it is done on a copy, and the result is copied back.
    """
    if "group_norm" not in call.name:
        return NOTHING
    again = stream(Stream.POINTWISE, traffic._replace(dram_written=0, cache_written=0), accelerator)
    is_last = len(call.inputs[0].shape) > 2 and call.inputs[0].stride[1] == 1
    return again + (stream(Stream.STRIDED, traffic, accelerator).scaled(2) if is_last else NOTHING)


def _reorders(call: Call) -> bool:
    """Whether an operand lies in another order than the result: neighbours are read apart."""
    if not call.outputs:
        return False
    result = call.outputs[0]
    return any(_order(ref) != _order(result) for ref in call.inputs if ref.numel > 1 and ref.shape == result.shape)


def _repeats(call: Call) -> bool:
    """Whether an operand is repeated over the result: such a kernel takes element by element, with an index for each.

    Elements of more than two bytes keep the memory busy all the same.
    """
    if not call.outputs or call.cls is not OpClass.ELEMENTWISE or ITEM_BYTES.get(call.outputs[0].dtype, 4) > 2:
        return False
    return any(ref.numel > 1 and ref.unique < call.outputs[0].numel for ref in call.inputs)


def _order(ref: TensorRef) -> tuple[int, ...]:
    """Dimensions from the slowest to the fastest, without those of one element or of one place."""
    real = [dim for dim, size in enumerate(ref.shape) if size > 1 and ref.stride[dim]]
    return tuple(sorted(real, key=lambda dim: (-ref.stride[dim], dim)))


# **** contractions ****


def _contraction(call: Call, traffic: Traffic, accelerator: Accelerator, *, compiled: bool) -> Kernel:
    if "attention" in call.name:
        return Kernel(Family.ATTENTION, _attention(call, accelerator))
    if "conv" in call.name and len(call.inputs) > 1:
        return Kernel(Family.CONVOLUTION, _convolution(call, traffic, accelerator, compiled=compiled))
    family = Family.SCALED_PRODUCT if call.modes[0] in ("fp8", "int8") else Family.PRODUCT
    memory_s = memory_time(traffic, accelerator, streamed(accelerator))
    shape = product_of(call)
    return Kernel(family, product(replace(shape, alignment=8) if compiled else shape, memory_s, accelerator))


def product_of(call: Call) -> Product:
    """Shapes of the operands of mm, addmm, bmm and their like; of other contractions a product with as many FLOPs."""
    matrices = [ref for ref in call.inputs if len(ref.shape) >= 2][-2:]
    result = call.outputs[0] if call.outputs else None
    if len(matrices) < 2 or result is None or len(result.shape) < 2:
        return _squarish(call)
    m, n = result.shape[-2:]
    k = matrices[0].shape[-1]
    batch = result.numel // max(1, m * n)
    if 2 * batch * m * n * k != call.flops:
        return _squarish(call)
    return Product(m, n, k, batch, call.modes[0], _alignment([*matrices, result]))


def _squarish(call: Call) -> Product:
    side = max(1, round((call.flops / 2) ** (1 / 3)))
    return Product(side, side, max(1, round(call.flops / 2 / side**2)), 1, call.modes[0])


def _alignment(refs: Sequence[TensorRef]) -> int:
    """The largest power of two, up to 8 elements, at multiples of which all rows begin."""
    steps = [step for ref in refs for step, size in zip(ref.stride, ref.shape, strict=True) if step > 1 and size > 1]
    return gcd(8, *steps)


def _attention(call: Call, accelerator: Accelerator) -> Estimate:
    query, key = _query_and_key(call)
    heads, tokens = (1, 2) if "scaled_dot_product" in call.name else (2, 1)
    shape = Attention(
        batch=query.shape[0],
        heads=query.shape[heads],
        kv_heads=key.shape[heads],
        queries=query.shape[tokens],
        keys=key.shape[tokens],
        head_dim=query.shape[3],
        causal=call.flops < 0.75 * call.flops_dense,
        mode=call.modes[0],
        item_bytes=query.item_bytes,
        current="scaled_dot_product" in call.name,
    )
    forward = attention(shape, accelerator)
    return forward.scaled(BACKWARD) if "backward" in call.name else forward


def _query_and_key(call: Call) -> tuple[TensorRef, TensorRef]:
    """In that order among the inputs; a backward's first input is the gradient."""
    four = [ref for ref in call.inputs if len(ref.shape) == 4]
    skipped = 1 if "backward" in call.name else 0
    return four[skipped], four[skipped + 1]


def _convolution(call: Call, traffic: Traffic, accelerator: Accelerator, *, compiled: bool) -> Estimate:
    """A backward is one convolution by image and one by weight, each as long as the forward."""
    is_backward = "backward" in call.name
    operands = [ref for ref in call.inputs if len(ref.shape) >= 3]
    result, image, weight = operands[:3] if is_backward else (call.outputs[0], *operands[:2])
    shape = Convolution(
        batch=image.shape[0],
        channels=image.shape[1],
        filters=result.shape[1],
        image=image.shape[2:],
        output=result.shape[2:],
        kernel=weight.shape[2:],
        groups=max(1, image.shape[1] // max(1, weight.shape[1])),
        unit_stride=result.shape[2:] == image.shape[2:],
        mode=call.modes[0],
        item_bytes=image.item_bytes,
        channels_last=compiled or image.stride[1] == 1,
    )
    one = convolution(shape, traffic, accelerator) + relaid(shape, accelerator)
    return one.scaled(max(1.0, call.flops / shape.flops)) if is_backward and shape.flops else one
