"""The same workload with more or fewer items in its batch."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from gobrrr.errors import UsageError
from gobrrr.workload import Workload


def batched(factory: Callable[[], Any], factor: float) -> Callable[[], Any]:
    """A factory whose inputs are repeated, or cut, along the batch dimension."""

    def scaled() -> Workload:
        made = factory()
        workload = Workload(*made) if isinstance(made, tuple) else made
        if not isinstance(workload, Workload):
            raise UsageError("the batch of a bare step cannot be changed: return a gobrrr.Workload or (model, inputs)")
        return replace(workload, inputs=_scaled(workload.inputs, workload.batch_dim, factor))

    return factory if factor == 1 else scaled


def _scaled(inputs: Any, dim: int, factor: float) -> Any:
    if isinstance(inputs, Mapping):
        return {name: _scaled(value, dim, factor) for name, value in inputs.items()}
    if isinstance(inputs, tuple | list):
        return type(inputs)(_scaled(value, dim, factor) for value in inputs)
    shape = getattr(inputs, "shape", None)
    if shape is None or len(shape) <= dim:
        return inputs
    items = round(shape[dim] * factor)
    if not items:
        raise UsageError(f"a batch of {shape[dim]} times {factor:g} leaves no item")
    times = [ceil(items / shape[dim]) if axis == dim else 1 for axis in range(len(shape))]
    return inputs.repeat(times).narrow(dim, 0, items)
