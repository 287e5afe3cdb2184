"""Stillness: a step without its compiler, one that leaves its gradients behind, its optimizers told to do nothing, and
one that drops nothing.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.treat.edit import attribute, in_force
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Stage

if TYPE_CHECKING:
    import torch


@contextmanager
def uncompiled(subject: Subject) -> Iterator[None]:
    """Behind a compiler nobody sees what is called."""
    with subject.ended(sum(dose.treatment.stage < Stage.FUSION for dose in subject.plan)):
        yield


@contextmanager
def idle_optimizers(subject: Subject) -> Iterator[None]:
    """Steps leave their gradients behind."""
    edits = [
        *(attribute(optimizer, "step", _idle(optimizer)) for optimizer in subject.optimizers),
        *(attribute(optimizer, "_opt_called", value=True) for optimizer in subject.optimizers),
        *(attribute(one, "zero_grad", _does_nothing) for one in (*subject.optimizers, *subject.models.values())),
    ]
    with in_force(edits):
        yield


def _idle(optimizer: "torch.optim.Optimizer") -> Callable[..., Any]:
    """Marked as a scheduler of rates marks steps: one that misses its mark warns."""
    idle: Any = partial(_only_asks, optimizer)
    idle._wrapped_by_lr_sched = True  # noqa: SLF001
    return idle  # type: ignore[no-any-return]


def _only_asks(
    optimizer: "torch.optim.Optimizer", closure: Callable[[], Any] | None = None, *_args: Any, **_kwargs: Any
) -> Any:
    """A step of an optimizer that changes nothing: where it is handed the loss to be computed, that is done once.

    A GradScaler leaves it to a fused optimizer to divide the gradients, and so that is done too.
    """
    import torch

    result = None
    if closure is not None:
        with torch.enable_grad():
            result = closure()
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        for parameter in (one for group in optimizer.param_groups for one in group["params"] if one.grad is not None):
            parameter.grad.div_(scale)
    return result


def _does_nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


@contextmanager
def without_dropout(subject: Subject) -> Iterator[bool]:
    """Nothing is dropped, whichever module holds the rate of it; gives whether anything would have been."""
    modules = [module for _, module in subject.modules() if module.training]
    rates = [attribute(module, name, 0.0) for module in modules for name in _rates(module)]
    with in_force(rates):
        yield bool(rates)


def _rates(module: "torch.nn.Module") -> list[str]:
    """Numbers of its own: `p` of torch's kinds of dropout, `dropout`, `attention_dropout` or `drop_prob` of others."""
    from torch import nn

    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    numbers = [name for name, value in vars(module).items() if isinstance(value, float) and value]
    dropping = [name for name in numbers if "drop" in name and "keep" not in name]
    return dropping + ["p" for name in numbers if name == "p" and isinstance(module, kinds)]
