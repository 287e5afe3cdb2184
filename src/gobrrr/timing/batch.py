"""The batch test: the step beside the same step with twice the batch."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gobrrr.errors import UsageError
from gobrrr.timing.clock import Clock
from gobrrr.timing.steady import LEAST_WINDOWS, StepEffort, timed, warm_up
from gobrrr.workload import Step, Workload

if TYPE_CHECKING:
    import torch


def doubled(workload: Workload) -> Workload:
    """The same model on twice the batch: every tensor of the inputs that has it, once more behind itself.

    The first tensor that has the dimension says how large the batch is, and those of another size there have none.
    """
    dim = workload.batch_dim
    batch = next((size for size in _sizes(workload.inputs, dim)), None)
    if batch is None:
        raise UsageError(
            f"no tensor in the workload's inputs has a dimension {dim} to double: set Workload(batch_dim=...)"
        )
    return replace(workload, inputs=_twice(workload.inputs, dim, batch))


def _sizes(inputs: Any, dim: int) -> "list[int]":
    if isinstance(inputs, Mapping):
        return _sizes(tuple(inputs.values()), dim)
    if isinstance(inputs, tuple | list):
        return [size for part in inputs for size in _sizes(part, dim)]
    return [inputs.shape[dim]] if _has_dim(inputs, dim) else []


def _twice(inputs: Any, dim: int, batch: int) -> Any:
    if isinstance(inputs, Mapping):
        return {key: _twice(part, dim, batch) for key, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        parts = [_twice(part, dim, batch) for part in inputs]
        return type(inputs)(*parts) if hasattr(inputs, "_fields") else type(inputs)(parts)
    return _behind_itself(inputs, dim) if _has_dim(inputs, dim) and inputs.shape[dim] == batch else inputs


def _behind_itself(tensor: "torch.Tensor", dim: int) -> "torch.Tensor":
    """A leaf, as the user's own is: the backward pass must not go on into the copy."""
    import torch

    return torch.cat((tensor, tensor), dim).detach().requires_grad_(tensor.requires_grad)


def _has_dim(value: Any, dim: int) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and -value.dim() <= dim < value.dim()


def alternating_windows(
    step: Step, other: Step, clock: Clock, effort: StepEffort, window_steps: int
) -> tuple[tuple[float, float], ...]:
    """Seconds of one step of each, window after window in turn, so that a drift of the machine hits both alike."""
    warm_up(other, clock, effort)
    began_s = clock.now_s()
    pairs: list[tuple[float, float]] = []
    while len(pairs) < LEAST_WINDOWS or (len(pairs) < effort.windows and clock.now_s() - began_s < effort.budget_s):
        pairs.append(
            (timed(step, clock, window_steps) / window_steps, timed(other, clock, window_steps) / window_steps)
        )
    return tuple(pairs)
