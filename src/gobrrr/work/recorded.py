"""An op's arguments as a trace records them: sizes, strides, types and plain values, as lists of equal length."""

import json
from ast import literal_eval
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import Any

from gobrrr.dtypes import dtype_name
from gobrrr.work.op import TensorRef

_LISTS = frozenset(("TensorList", "GenericList"))
_PLAIN = frozenset("Scalar ScalarList Int Bool Double String Device Layout Generator None".split())


@dataclass(frozen=True, slots=True)
class Value:
    """One argument: a tensor, a list of them, or a plain value that may have been recorded or not."""

    tensors: tuple[TensorRef, ...] | None
    is_list: bool = False
    plain: Any = None
    has_plain: bool = False
    unrecorded: bool = False
    """There was a plain value, or may have been, and nobody wrote it down."""

    @property
    def is_unknown_list(self) -> bool:
        return self.is_list and self.tensors is None

    @property
    def is_absent(self) -> bool:
        return self.tensors is None and self.plain is None


@dataclass(frozen=True, slots=True)
class Recorded:
    name: str
    values: tuple[Value, ...]

    @property
    def tensors(self) -> tuple[TensorRef, ...]:
        return tuple(ref for value in self.values for ref in value.tensors or ())

    def with_lists_of(self, numel: int, dtype: str) -> "Recorded":
        """With one flat tensor of so many numbers in each list of tensors, of which no sizes were recorded; what is
        listed beside them, one for each, is cut to that.
        """
        flat = Value((TensorRef(None, 0, (numel,), (1,), dtype),), is_list=True)
        return Recorded(self.name, tuple(_cut(flat if one.is_unknown_list else one) for one in self.values))


def _cut(value: Value) -> Value:
    return replace(value, plain=value.plain[:1]) if isinstance(value.plain, tuple) else value


def recorded(
    name: str, dims: bytes, strides: bytes, types: bytes, values: bytes, *, assumed_type: str | None
) -> Recorded | None:
    """From the JSON texts of a row; None if they are no lists. A type that was not recorded is the assumed one."""
    sizes, steps, kinds, plain = (_list(text) for text in (dims, strides, types, values))
    if sizes is None:
        return None
    count = len(sizes)
    found = [
        _value(size, step, kind, value, assumed_type)
        for size, step, kind, value in zip(
            sizes, _padded(steps, count), _padded(kinds, count), _padded(plain, count), strict=True
        )
    ]
    return Recorded(name, tuple(found))


def _list(text: bytes) -> list[Any] | None:
    try:
        found = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, list) else None


def _padded(items: list[Any] | None, count: int) -> Sequence[Any]:
    """Older profilers left out what they did not know."""
    return [None] * count if items is None or len(items) != count else items


def _value(size: Any, steps: Any, kind: Any, value: Any, assumed: str | None) -> Value:
    if isinstance(size, list) and size and isinstance(size[0], list):
        listed = steps if isinstance(steps, list) and len(steps) == len(size) else [None] * len(size)
        refs = [_ref(one, step, assumed) for one, step in zip(size, listed, strict=True)]
        return Value(tuple(ref for ref in refs if ref is not None), is_list=True)
    if isinstance(kind, str) and kind in _LISTS and not size and not value:
        return Value(None, is_list=True, unrecorded=value is None)
    dtype = dtype_name(kind) if isinstance(kind, str) and kind not in _PLAIN else None
    if dtype is None and kind is None and size:
        dtype = assumed
    if dtype is not None or size:
        ref = _ref(size, steps, dtype or str(kind))
        return Value(None if ref is None else (ref,))
    return _plain(value, kind)


def _plain(value: Any, kind: Any) -> Value:
    if not isinstance(value, str) or not value:
        return Value(None, unrecorded=value is None and kind != "")
    return Value(None, plain=_literal(value), has_plain=True)


@lru_cache(maxsize=1 << 10)
def _literal(text: str) -> Any:
    """What it says, or the text itself; most of them are one of a few."""
    try:
        return _frozen(literal_eval(text))
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _ref(size: Any, steps: Any, dtype: str | None) -> TensorRef | None:
    """Contiguous where no strides were recorded."""
    if dtype is None or not isinstance(size, list) or not all(isinstance(one, int) and one >= 0 for one in size):
        return None
    known = (
        isinstance(steps, list) and len(steps) == len(size) and all(isinstance(one, int) and one >= 0 for one in steps)
    )
    stride = tuple(steps) if known else tuple(prod(size[place + 1 :]) for place in range(len(size)))
    return TensorRef(None, 0, tuple(size), stride, dtype)
