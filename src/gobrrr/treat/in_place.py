"""A module that computes in the place of another, which keeps its parameters and their names for whoever looks."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class InPlace:
    """The `forward` of a module, and no part of it: nobody counts, saves or trains what is here."""

    module: "torch.nn.Module"

    def __call__(self, x: "torch.Tensor") -> Any:
        return self.module.forward(x)  # hooks are the other's, and called there


def at_work(module: Any) -> Any:
    """Whoever computes when this module is called."""
    forward = vars(module).get("forward")
    return forward.module if isinstance(forward, InPlace) else module
