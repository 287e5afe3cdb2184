"""The same workload with more or fewer items in its batch, or with longer or shorter sequences."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import ceil
from typing import Any, NamedTuple

from gobrrr.errors import UsageError
from gobrrr.workload import Workload


class Scale(NamedTuple):
    """What a change asks of the workload itself: it has to be counted anew for it."""

    batch: float = 1.0
    """Times as many."""
    sequence: float = 1.0
    traced: bool = False
    """As a compiler sees the model: libraries take other ways then."""


def resized(factory: Callable[[], Any], scale: Scale) -> Callable[[], Any]:
    """A factory whose inputs are repeated, or cut, along the batch dimension and the one of the tokens."""

    def scaled() -> Workload:
        made = factory()
        workload = Workload(*made) if isinstance(made, tuple) else made
        if not isinstance(workload, Workload):
            raise UsageError("the batch of a bare step cannot be changed: return a gobrrr.Workload or (model, inputs)")
        dim, tokens = workload.batch_dim, _tokens(workload, scale)
        return replace(workload, inputs=_mapped(workload.inputs, lambda one: _resized(one, dim, tokens, scale)))

    return factory if scale.batch == scale.sequence == 1 else scaled


def _tokens(workload: Workload, scale: Scale) -> int | None:
    """How long a sequence is: ids are integers of batch by tokens. None where that is left as it is."""
    if scale.sequence == 1:
        return None
    dim = workload.batch_dim + 1
    for tensor in _tensors(workload.inputs):
        if len(tensor.shape) > dim and not tensor.is_floating_point():
            return int(tensor.shape[dim])
    raise UsageError("the sequence of these inputs cannot be changed: no tensor of integers has a batch of token ids")


def _tensors(inputs: Any) -> Iterator[Any]:
    if isinstance(inputs, Mapping):
        inputs = tuple(inputs.values())
    if isinstance(inputs, tuple | list):
        for part in inputs:
            yield from _tensors(part)
    elif hasattr(inputs, "shape"):
        yield inputs


def _mapped(inputs: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(inputs, Mapping):
        return {name: _mapped(value, change) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)(_mapped(value, change) for value in inputs)
    return change(inputs) if hasattr(inputs, "shape") else inputs


def _resized(tensor: Any, batch_dim: int, tokens: int | None, scale: Scale) -> Any:
    """Masks have the tokens in two dimensions, ids in one."""
    for dim, size in enumerate(tensor.shape):
        factor = scale.batch if dim == batch_dim else scale.sequence if size == tokens else 1
        if factor != 1:
            tensor = _repeated(tensor, dim, factor)
    return tensor


def _repeated(tensor: Any, dim: int, factor: float) -> Any:
    size = tensor.shape[dim]
    items = round(size * factor)
    if not items:
        raise UsageError(f"{size} times {factor:g} leaves nothing of dimension {dim}")
    times = [ceil(items / size) if axis == dim else 1 for axis in range(len(tensor.shape))]
    return tensor.repeat(times).narrow(dim, 0, items)
