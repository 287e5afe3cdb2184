"""What common ops return, known without asking torch: most of a step looks like its operands, or is a product of them.

Only what is certain: types that have to be promoted and operands that are not contiguous are left to torch's own
answer (`meta.py`), which these must equal. Torch takes seconds to load and may not be there at all.
"""

from ast import literal_eval
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import ceil, prod
from typing import Any, TypeAlias

from gobrrr.work.call import Call
from gobrrr.work.op import TensorRef
from gobrrr.work.recorded import Recorded, Value
from gobrrr.work.registry import canonical

Arguments: TypeAlias = Mapping[str, Any]
Result: TypeAlias = Callable[[Arguments], tuple[TensorRef, ...]]


class _NotKnownError(Exception):
    """By us: torch may know."""


@dataclass(frozen=True, slots=True)
class _Known:
    arguments: Mapping[str, str]
    """In the order of the schema, each with its default as text, if it has one."""
    keyword_only: frozenset[str]
    result: Result


_KNOWN: dict[str, _Known] = {}


def call_of(op: Recorded, *, tf32: bool) -> Call | None:
    """The call with its arguments by name and with what it returns; None if that is not certain."""
    known = _KNOWN.get(canonical(op.name)) if op.name.startswith("aten::") else None
    if known is None:
        return None
    try:
        args = _arguments(known, op.values)
        given = None if "out" in known.arguments else args.get("out")
        outputs = _changed(op.name, args, given) or known.result(args)
    except _NotKnownError:
        return None
    written = frozenset() if given is None else frozenset(("out",))
    return Call(op.name, args, outputs, write_only=written, keyword_only=known.keyword_only | written, tf32=tf32)


def _changed(name: str, args: Arguments, given: TensorRef | None) -> tuple[TensorRef, ...] | None:
    """What is given to hold the result, or the first operand of an op in place; None if that has to grow first."""
    if given is not None:
        return (given,) if given.numel else None
    if not name.endswith("_"):
        return None
    first = next(iter(args.values()))
    return (first,) if isinstance(first, TensorRef) else first


def _arguments(known: _Known, values: tuple[Value, ...]) -> dict[str, Any]:
    """A last one beyond those of the schema is where the result goes. Tensors are storages of their own."""
    names = [*known.arguments, "out"]
    _require(len(values) <= len(names) and (len(values) < len(names) or values[-1].tensors is not None))
    numbers = count()
    missing = [Value(None, unrecorded=True)] * (len(known.arguments) - len(values))
    pairs = zip(names, [*values, *missing], strict=False)
    return {name: _argument(value, known.arguments.get(name, ""), numbers) for name, value in pairs}


def _argument(value: Value, default: str, numbers: Iterator[int]) -> Any:
    if value.tensors is not None:
        refs = tuple(ref._replace(storage=next(numbers)) for ref in value.tensors)
        return refs if value.is_list else refs[0]
    if value.has_plain:
        return value.plain
    _require(default or not value.unrecorded)
    return literal_eval(default) if default else None


def _require(holds: object) -> None:
    if not holds:
        raise _NotKnownError


def _knows(*schemas: str) -> Callable[[Result], Result]:
    """Registers the decorated function for ops written as `name argument argument=default * keyword=default`."""

    def register(result: Result) -> Result:
        for schema in schemas:
            name, *arguments = schema.split()
            keywords = arguments[arguments.index("*") + 1 :] if "*" in arguments else []
            split = [argument.partition("=") for argument in arguments if argument != "*"]
            only = frozenset(keyword.partition("=")[0] for keyword in keywords)
            _KNOWN[name] = _Known({key: default for key, _, default in split}, only, result)
        return result

    return register


def _new(shape: tuple[int, ...], dtype: str) -> TensorRef:
    return TensorRef(None, 0, shape, tuple(prod(shape[place + 1 :]) for place in range(len(shape))), dtype)


def _is_contiguous(ref: TensorRef) -> bool:
    own = _new(ref.shape, ref.dtype).stride
    return all(size == 1 or mine == theirs for size, mine, theirs in zip(ref.shape, own, ref.stride, strict=True))


def _tensor(args: Arguments, name: str) -> TensorRef:
    found = args.get(name)
    _require(isinstance(found, TensorRef) and _is_contiguous(found))
    assert isinstance(found, TensorRef)
    return found


# **** pointwise ****

_FLOATING = frozenset(("fp64", "fp32", "bf16", "fp16"))


@dataclass(frozen=True, slots=True)
class _Operands:
    shape: tuple[int, ...]
    """Of all together."""
    types: frozenset[str]
    """Of those that have dimensions."""
    single: frozenset[str]
    """Of those that have none."""


def _operands(args: Arguments) -> _Operands:
    refs = [value for name, value in args.items() if isinstance(value, TensorRef) and name != "condition"]
    _require(refs and all(_is_contiguous(ref) for ref in refs))
    return _Operands(
        _broadcast([value.shape for value in args.values() if isinstance(value, TensorRef)]),
        frozenset(ref.dtype for ref in refs if ref.shape),
        frozenset(ref.dtype for ref in refs if not ref.shape),
    )


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    longest = max(map(len, shapes))
    columns = zip(*((1,) * (longest - len(shape)) + shape for shape in shapes), strict=True)
    sizes = [set(column) - {1} or {1} for column in columns]
    _require(all(len(size) == 1 for size in sizes))
    return tuple(size.pop() for size in sizes)


@_knows(
    *(f"{name} self" for name in "exp log sqrt rsqrt reciprocal sigmoid tanh silu relu sin cos erf".split()),
    *(f"{name} grad_output output" for name in ("tanh_backward", "sigmoid_backward")),
    "div self other=1",
    "gelu self * approximate='none'",
    "gelu_backward grad_output self * approximate='none'",
    "silu_backward grad_output self",
    "threshold_backward grad_output self threshold=1",
    "threshold self threshold=1 value=1",
    "pow self exponent",
    "lerp self end weight",
    "addcmul self tensor1 tensor2 * value=1",
    "addcdiv self tensor1 tensor2 * value=1",
)
def _pointwise(args: Arguments) -> tuple[TensorRef, ...]:
    """Of floating operands the widest type: a plain number or one without dimensions does not change it."""
    found = _operands(args)
    _require(found.types and found.types <= _FLOATING)
    widest = "fp64" if "fp64" in found.types else "fp32"
    return (_new(found.shape, widest if len(found.types) > 1 else min(found.types)),)


@_knows(
    *(f"{name} self" for name in ("abs", "neg")),
    *(f"{name} self other=1 * alpha=1" for name in ("add", "sub")),
    *(f"{name} self other=1" for name in ("mul", "maximum", "minimum")),
    "clamp_min self min=1",
    "where condition self other",
)
def _arithmetic(args: Arguments) -> tuple[TensorRef, ...]:
    """The same, and whole numbers of one type stay so."""
    found = _operands(args)
    if found.types <= _FLOATING:
        return _pointwise(args)
    _require(len(found.types | found.single) == 1 and not any(isinstance(value, float) for value in args.values()))
    return (_new(found.shape, min(found.types)),)


@_knows(*(f"{name} self other=1" for name in "eq ne lt le gt ge logical_and logical_or".split()))
def _comparison(args: Arguments) -> tuple[TensorRef, ...]:
    return (_new(_operands(args).shape, "bool"),)


@_knows(
    "fill self value=1", "zero self", "copy self src non_blocking=False", "_foreach_copy self src non_blocking=False"
)
def _overwritten(_args: Arguments) -> tuple[TensorRef, ...]:
    """Which only ever happens in place."""
    raise _NotKnownError


@_knows("gather self dim index * sparse_grad=False")
def _gathered(args: Arguments) -> tuple[TensorRef, ...]:
    return (_new(args["index"].shape, args["self"].dtype),)


@_knows("arange start end step")
def _numbers(args: Arguments) -> tuple[TensorRef, ...]:
    """As many as there are from start to end, into a tensor that grows."""
    _require("out" in args and all(isinstance(args[name], int) for name in ("start", "end", "step")) and args["step"])
    return (_new((max(0, ceil((args["end"] - args["start"]) / args["step"])),), args["out"].dtype),)


@_knows("cat tensors dim=0")
def _joined(args: Arguments) -> tuple[TensorRef, ...]:
    """What is empty and has one dimension joins anything."""
    parts, dim = args["tensors"], args["dim"]
    _require(isinstance(parts, tuple) and isinstance(dim, int))
    full = [part for part in parts if part.shape != (0,)]
    _require(full and len({part.dtype for part in parts}) == 1 and len({len(part.shape) for part in full}) == 1)
    _require(all(_is_contiguous(part) for part in full[1:]))
    place = dim % len(full[0].shape)
    length = sum(part.shape[place] for part in full)
    return (_new((*full[0].shape[:place], length, *full[0].shape[place + 1 :]), full[0].dtype),)


# **** products ****


@_knows("mm self mat2", "bmm self mat2")
def _product(args: Arguments) -> tuple[TensorRef, ...]:
    return (_product_of(args["self"], args["mat2"]),)


@_knows("addmm self mat1 mat2 * beta=1 alpha=1")
def _biased_product(args: Arguments) -> tuple[TensorRef, ...]:
    return (_product_of(args["mat1"], args["mat2"]),)


@_knows("baddbmm self batch1 batch2 * beta=1 alpha=1")
def _biased_products(args: Arguments) -> tuple[TensorRef, ...]:
    return (_product_of(args["batch1"], args["batch2"]),)


def _product_of(left: Any, right: Any) -> TensorRef:
    """Their strides do not matter: the result is new."""
    _require(isinstance(left, TensorRef) and isinstance(right, TensorRef) and left.dtype == right.dtype)
    _require(len(left.shape) == len(right.shape) >= 2 and left.shape[-1] == right.shape[-2])
    _require(left.shape[:-2] == right.shape[:-2])
    return _new((*left.shape[:-1], right.shape[-1]), left.dtype)


# **** rows ****


@_knows(
    "_softmax self dim half_to_float=False",
    "_log_softmax self dim half_to_float=False",
    "_softmax_backward_data grad_output output dim input_dtype=6",
    "_log_softmax_backward_data grad_output output dim input_dtype=6",
)
def _like_the_first(args: Arguments) -> tuple[TensorRef, ...]:
    _require(not args.get("half_to_float") and args.get("input_dtype", 6) == 6)
    names = [name for name, value in args.items() if isinstance(value, TensorRef)]
    first, *others = (_tensor(args, name) for name in names)
    _require(
        all(other.dtype == first.dtype for other in others) and ("input_dtype" not in args or first.dtype == "fp32")
    )
    return (_new(first.shape, first.dtype),)


@_knows("native_layer_norm input normalized_shape weight bias eps=1e-05")
def _layer_norm(args: Arguments) -> tuple[TensorRef, ...]:
    """With mean and inverse deviation of each row."""
    ref, over = _tensor(args, "input"), args["normalized_shape"]
    _require(isinstance(over, tuple) and ref.dtype == "fp32")
    row = _new((*ref.shape[: -len(over)], *(1 for _ in over)), ref.dtype)
    return (_new(ref.shape, ref.dtype), row, row)


@_knows("native_layer_norm_backward grad_out input normalized_shape mean rstd weight bias output_mask")
def _layer_norm_backward(args: Arguments) -> tuple[TensorRef, ...]:
    """Gradients of the input, the weight and the bias."""
    refs = [_tensor(args, name) for name in ("input", "weight", "bias")]
    _require(args["output_mask"] == (True, True, True) and {ref.dtype for ref in refs} == {"fp32"})
    return tuple(_new(ref.shape, "fp32") for ref in refs)


@_knows("sum self dim keepdim=False * dtype=None", "mean self dim keepdim=False * dtype=None")
def _reduced(args: Arguments) -> tuple[TensorRef, ...]:
    ref, dims = args["self"], args["dim"]
    _require(isinstance(ref, TensorRef) and isinstance(dims, tuple) and dims and args["dtype"] is None)
    _require(ref.dtype in _FLOATING and isinstance(args["keepdim"], bool) and ref.shape)
    over = {dim % len(ref.shape) for dim in dims}
    kept = [1 if place in over else size for place, size in enumerate(ref.shape)]
    shape = kept if args["keepdim"] else [size for place, size in enumerate(ref.shape) if place not in over]
    return (_new(tuple(shape), ref.dtype),)


@_knows("nll_loss_forward self target weight reduction ignore_index=-100")
def _nll_loss(args: Arguments) -> tuple[TensorRef, ...]:
    """The mean or the sum, and the weight of all."""
    ref = _tensor(args, "self")
    _require(args["weight"] is None and args["reduction"] in (1, 2) and len(ref.shape) == 2)
    return (_new((), ref.dtype), _new((), ref.dtype))


@_knows("nll_loss_backward grad_output self target weight reduction ignore_index total_weight")
def _nll_loss_backward(args: Arguments) -> tuple[TensorRef, ...]:
    ref = _tensor(args, "self")
    return (_new(ref.shape, ref.dtype),)


@_knows("native_dropout input p train=True")
def _dropout(args: Arguments) -> tuple[TensorRef, ...]:
    ref = _tensor(args, "input")
    _require(args["train"] is True and ref.dtype in _FLOATING)
    return (_new(ref.shape, ref.dtype), _new(ref.shape, "bool"))


@_knows("native_dropout_backward grad_output mask scale")
def _dropout_backward(args: Arguments) -> tuple[TensorRef, ...]:
    ref = _tensor(args, "grad_output")
    _require(_tensor(args, "mask").dtype == "bool" and ref.dtype in _FLOATING)
    return (_new(ref.shape, ref.dtype),)


@_knows("embedding_dense_backward grad_output indices num_weights padding_idx scale_grad_by_freq=False")
def _embedding_backward(args: Arguments) -> tuple[TensorRef, ...]:
    grad, rows = _tensor(args, "grad_output"), args["num_weights"]
    _require(isinstance(rows, int))
    return (_new((rows, grad.shape[-1]), grad.dtype),)


@_knows("index_select self dim index")
def _index_select(args: Arguments) -> tuple[TensorRef, ...]:
    ref, index, dim = _tensor(args, "self"), _tensor(args, "index"), args["dim"]
    _require(isinstance(dim, int) and ref.shape)
    place = dim % len(ref.shape)
    return (_new((*ref.shape[:place], index.numel, *ref.shape[place + 1 :]), ref.dtype),)


# **** attention ****


@_knows(
    "_scaled_dot_product_cudnn_attention query key value attn_bias compute_log_sumexp dropout_p=0.0 is_causal=False "
    "return_debug_mask=False * scale=None"
)
def _cudnn_attention(args: Arguments) -> tuple[TensorRef, ...]:
    """The result, a number for each row of scores, and seed and offset of its random numbers."""
    query, value = args["query"], args["value"]
    _require(isinstance(query, TensorRef) and isinstance(value, TensorRef) and args["compute_log_sumexp"] is True)
    rows = query.shape[:-1]
    return (_new((*rows, value.shape[-1]), query.dtype), _new((*rows, 1), "fp32"), *[_new((), "int64")] * 2)


@_knows(
    "_scaled_dot_product_cudnn_attention_backward grad_out query key value out logsumexp philox_seed philox_offset "
    "attn_bias cum_seq_q cum_seq_k max_q max_k dropout_p is_causal * scale=None"
)
def _cudnn_attention_backward(args: Arguments) -> tuple[TensorRef, ...]:
    """Gradients, each like its operand."""
    refs = [args[name] for name in ("query", "key", "value")]
    _require(all(isinstance(ref, TensorRef) for ref in refs))
    return tuple(ref._replace(storage=None) for ref in refs)
