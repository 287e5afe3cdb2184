"""What an op returns, found by running it on tensors that have shapes and no data.

A trace records what goes into an op and not what comes out. The op itself knows: on the meta device it does everything
but the arithmetic. The one file that knows torch's schemas by their attributes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch

from gobrrr.dtypes import dtype_name
from gobrrr.work.call import Call
from gobrrr.work.op import TensorRef
from gobrrr.work.recorded import Recorded, Value

TORCH_DTYPES = {
    name: kind for kind in vars(torch).values() if isinstance(kind, torch.dtype) and (name := dtype_name(str(kind)))
}
TORCH_DTYPES |= {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "int8": torch.int8,
    "uint8": torch.uint8,
}

_UNRECORDED = {"bool": False, "float": 0.0, "number": 1}
"""What stands for a value that was not recorded, where no shape can depend on it."""


def call_of(recorded: Recorded, *, tf32: bool) -> Call | None:
    """The call with its arguments by name and with what it returns; None if no overload takes such arguments."""
    for overload in _overloads(recorded.name):
        call = _called(overload, recorded, tf32=tf32)
        if call is not None:
            return call
    return None


@cache
def launches(name: str) -> bool:
    """Whether an op starts any work: views and allocations do not. An op that torch has no more may have."""
    from gobrrr.work.counter import Signature

    overloads = _overloads(name)
    return not overloads or any(Signature.of(one).launches for one in overloads)


@cache
def only_calls(name: str) -> bool:
    """Whether an op does nothing but by others."""
    from gobrrr.work.counter import Signature

    return any(Signature.of(one).decomposes for one in _overloads(name))


@dataclass(frozen=True, slots=True)
class _Argument:
    name: str
    kind: str
    keyword_only: bool
    written: bool
    default: Any
    has_default: bool


@cache
def _overloads(name: str) -> tuple[Any, ...]:
    """Those that torch dispatches, and not those of its scripting language on numbers and text. None where the name is
    no op's: a stranger's may be that of any attribute of torch's own objects.
    """
    namespace, _, short = name.partition("::")
    spelled = namespace.isascii() and namespace.isidentifier() and short.isascii() and short.isidentifier()
    packet = getattr(getattr(torch.ops, namespace, None), short, None) if spelled else None
    if not isinstance(packet, torch._ops.OpOverloadPacket):  # noqa: SLF001 (its class has no public name)
        return ()
    found = [getattr(packet, one) for one in packet.overloads()]  # type: ignore[no-untyped-call]
    return tuple(one for one in found if torch._C._dispatch_has_kernel(one.name()))  # noqa: SLF001 (as the counter)


@cache
def _arguments(overload: Any) -> tuple[_Argument, ...]:
    return tuple(
        _Argument(
            one.name,
            str(one.type),
            one.kwarg_only,
            one.alias_info is not None and one.alias_info.is_write,
            one.default_value,
            one.has_default_value(),
        )
        for one in overload._schema.arguments  # noqa: SLF001 (the schema is public in all but name)
    )


def _called(overload: Any, recorded: Recorded, *, tf32: bool) -> Call | None:
    arguments = _arguments(overload)
    if len(recorded.values) > len(arguments):
        return None
    try:
        given = [_given(argument, value) for argument, value in zip(arguments, recorded.values, strict=False)]
        rest = [_default(argument) for argument in arguments[len(given) :]]
        values = dict(zip((argument.name for argument in arguments), [*given, *rest], strict=True))
        outputs = _run(overload, arguments, values)
    except (RuntimeError, TypeError, ValueError, AssertionError, LookupError, AttributeError):
        return None  # another overload's arguments, or an op that says nothing without data
    numbers = {id(tensor): place for place, tensor in enumerate(_tensors(list(values.values())))}
    described = {name: _described(value, numbers) for name, value in values.items()}
    changed = [tensor for one in arguments if one.written for tensor in _tensors(values[one.name])]
    returned = {
        id(tensor): tensor for tensor in [*_tensors(outputs), *changed]
    }.values()  # some return what they change
    return Call(
        name=recorded.name,
        args=described,
        outputs=tuple(_described(tensor, numbers) for tensor in returned),
        write_only=frozenset(one.name for one in arguments if one.written and one.keyword_only),
        keyword_only=frozenset(one.name for one in arguments if one.keyword_only),
        tf32=tf32,
    )


def _given(argument: _Argument, value: Value) -> Any:
    kind = (
        argument.kind.removeprefix("Optional[").removesuffix("]")
        if argument.kind.startswith("Optional[")
        else argument.kind
    )
    if kind == "Tensor":
        if value.tensors is None or len(value.tensors) > 1 or value.is_list:
            if value.is_absent and not value.is_list:
                return None if argument.kind != "Tensor" else torch.empty(0, device="meta")  # passed, and undefined
            raise TypeError
        return _tensor(value.tensors[0])
    if "Tensor" in kind:
        if value.tensors is None or not value.is_list:
            if value.is_absent and argument.kind.startswith("Optional"):
                return None
            raise TypeError
        return [_tensor(ref) for ref in value.tensors]
    if value.tensors is not None:
        raise TypeError
    return _plain(argument, kind, value)


def _plain(argument: _Argument, kind: str, value: Value) -> Any:
    if argument.name in ("device", "layout", "pin_memory", "generator", "memory_format"):
        return None if argument.kind.startswith("Optional") else argument.default
    if not value.has_plain:
        if value.unrecorded and "int" in kind:
            raise TypeError  # a size, a stride or a dimension: the shape of the result depends on it
        if argument.has_default or argument.kind.startswith("Optional"):
            return argument.default
        return True if argument.name == "training" else _UNRECORDED[kind]
    if argument.name == "dtype" and isinstance(value.plain, int):
        return _SCALAR_TYPES[value.plain]
    if kind == "float" and isinstance(value.plain, int):
        return float(value.plain)
    return value.plain


_SCALAR_TYPES = dict(
    enumerate(
        (
            torch.uint8,
            torch.int8,
            torch.int16,
            torch.int32,
            torch.int64,
            torch.float16,
            torch.float32,
            torch.float64,
            torch.complex32,
            torch.complex64,
            torch.complex128,
            torch.bool,
        )
    )
) | {15: torch.bfloat16}
"""By the number that a trace gives for a type."""


def _default(argument: _Argument) -> Any:
    if argument.has_default or argument.kind.startswith("Optional"):
        return argument.default
    raise TypeError


def _run(overload: Any, arguments: Sequence[_Argument], values: dict[str, Any]) -> Any:
    positional = [values[one.name] for one in arguments if not one.keyword_only]
    keywords = {one.name: values[one.name] for one in arguments if one.keyword_only and values[one.name] is not None}
    with torch.no_grad():
        return overload(*positional, **keywords)


def _tensor(ref: TensorRef) -> torch.Tensor:
    return torch.empty_strided(ref.shape, ref.stride, dtype=TORCH_DTYPES[ref.dtype], device="meta")


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _tensors(item)


def _described(value: Any, numbers: dict[int, int]) -> Any:
    """Arguments are storages of their own; what the op gives back of them is the same one."""
    if isinstance(value, torch.Tensor):
        number = numbers.get(id(value))
        return TensorRef(
            number, 0, tuple(value.shape), value.stride(), dtype_name(str(value.dtype)) or str(value.dtype)
        )
    return tuple(_described(item, numbers) for item in value) if isinstance(value, list | tuple) else value
