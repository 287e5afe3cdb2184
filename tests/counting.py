"""How tests count: a function run under the Counter, or a Call written by hand, as a recorded trace would give it.

Nothing here asks gobrrr what something costs: memory is counted address by address.
"""

from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any

import numpy as np
import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch._ops import OpOverload

from gobrrr.dtypes import dtype_name
from gobrrr.work.call import Call
from gobrrr.work.counter import Counter
from gobrrr.work.op import CountedBy, Op, TensorRef
from gobrrr.work.program import Program
from gobrrr.work.registry import rule_for
from gobrrr.work.work import Work

few = settings(max_examples=40)
"""Every example dispatches ops through Python; the formulas have few branches, so few examples reach them all."""

SIZES = st.integers(1, 5)
FLOATS = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.float16])


@st.composite
def laid_out(draw, shape: tuple[int, ...], dtype: torch.dtype = torch.float32) -> torch.Tensor:
    """A tensor of that shape, somehow in memory: dense, turned, part of a wider buffer, or repeating itself."""
    layout = draw(st.sampled_from(["dense", "turned", "part", "repeating"]))
    if layout == "turned":
        return torch.ones(shape[::-1], dtype=dtype).permute(*reversed(range(len(shape))))
    if layout == "part":
        return torch.ones([size + 2 for size in shape], dtype=dtype)[tuple(slice(1, 1 + size) for size in shape)]
    if layout == "repeating":
        repeats = draw(st.integers(0, len(shape) - 1)) if shape else 0
        return torch.ones([1 if dim == repeats else size for dim, size in enumerate(shape)], dtype=dtype).expand(shape)
    return torch.ones(shape, dtype=dtype)


def programmed(function: Callable[..., object], *args: Any, **kwargs: Any) -> Program:
    """The program of one call of the function; what makes its arguments is not part of it."""
    with Counter() as counter:
        function(*args, **kwargs)
    return counter.program()


def launched(function: Callable[..., object], *args: Any, **kwargs: Any) -> list[Op]:
    """The ops that start a kernel."""
    return [op for op in programmed(function, *args, **kwargs).ops if op.launches]


def only(function: Callable[..., object], *args: Any, **kwargs: Any) -> Op:
    """The one op that starts a kernel, counted by its formula."""
    (op,) = launched(function, *args, **kwargs)
    assert op.counted_by is CountedBy.FORMULA, op
    return op


def work_of(function: Callable[..., object], *args: Any, **kwargs: Any) -> Work:
    return only(function, *args, **kwargs).work


def named(ops: Iterable[Op], name: str) -> list[Op]:
    """Those of that name, whatever the overload."""
    return [op for op in ops if op.name.partition(".")[0].removeprefix("aten::") == name]


def moved(work: Work) -> tuple[float, float]:
    return work.bytes_read, work.bytes_written


def touched_bytes(*tensors: torch.Tensor) -> int:
    """Distinct bytes of memory that the tensors show, found by listing the address of each."""
    return len(set().union(*(_addresses(tensor) for tensor in tensors)))


def _addresses(tensor: torch.Tensor) -> set[int]:
    return addresses(tensor.untyped_storage().data_ptr(), ref(tensor), tensor.itemsize)


def addresses(start: int, view: TensorRef, item_bytes: int) -> set[int]:
    """Of every byte of the view, in a storage that starts there."""
    first = np.array(start + view.offset * item_bytes)
    steps = (np.arange(size) * step * item_bytes for size, step in zip(view.shape, view.stride, strict=True))
    elements = np.unique(reduce(np.add.outer, steps, first))
    return set(np.add.outer(elements, np.arange(item_bytes)).ravel().tolist())


def ref(tensor: torch.Tensor) -> TensorRef:
    """The description of a tensor, as the counter would write it."""
    return TensorRef(
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        dtype_name(str(tensor.dtype)),
    )


def call(op: OpOverload, *args: Any, outputs: Iterable[torch.Tensor], tf32: bool = False, **kwargs: Any) -> Call:
    """A call of an op that need not run here, its arguments named by its schema."""
    arguments = op._schema.arguments
    defaults = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    given = {**defaults, **dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}
    return Call(
        name=op.name().partition(".")[0],
        args={argument.name: _described(given[argument.name]) for argument in arguments},
        outputs=tuple(ref(tensor) for tensor in outputs),
        keyword_only=frozenset(argument.name for argument in arguments if argument.kwarg_only),
        tf32=tf32,
    )


def _described(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ref(value)
    return tuple(map(_described, value)) if isinstance(value, list | tuple) else value


def formula_of(made: Call) -> Work:
    return rule_for(made.name).formula(made)
