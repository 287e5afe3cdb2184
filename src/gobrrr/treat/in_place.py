"""What computes in the place of a module's forward, while the module keeps its parameters and their names."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class InPlace:
    """Another module, which is no part of the first: nobody counts, saves or trains it."""

    module: "torch.nn.Module"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.module.forward(*args, **kwargs)  # hooks are the first one's, and called there


def at_work(module: Any) -> Any:
    """Whoever computes when this module is called."""
    forward = vars(module).get("forward")
    return forward.module if isinstance(forward, InPlace) else module


def has_own_weight(module: "torch.nn.Module") -> bool:
    """And not one that is computed in each step, as pruned and normalized weights are: it could not be copied."""
    return "weight" in module._parameters  # noqa: SLF001


def around(forward: Callable[..., Any], run: Callable[..., Any], *how: Any) -> Callable[..., Any]:
    """Calls `run(forward, *how, …)` and looks like the forward that it goes around. No closure: a copy of the model
    would share that, and compute with the weights of the first.
    """
    found = partial(run, forward, *how)
    found.__signature__ = inspect.signature(forward)  # type: ignore[attr-defined]  # read by who chooses the arguments
    return found
