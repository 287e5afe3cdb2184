"""gobrrr: tell me what limits my PyTorch step, from first principles; fix it; prove it."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gobrrr.treat.api import treat as treat
    from gobrrr.treat.prescription import apply as apply
    from gobrrr.work.registry import formula as formula
    from gobrrr.workload import Workload as Workload

_HOMES = {
    "Workload": "gobrrr.workload",
    "apply": "gobrrr.treat.prescription",
    "formula": "gobrrr.work.registry",
}

__all__ = ["Workload", "apply", "formula", "treat"]


def __getattr__(name: str) -> Any:
    if name == "treat":
        return import_module("gobrrr.treat")  # a package that can be called
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def load_ipython_extension(ipython: Any) -> None:
    """`%load_ext gobrrr`."""
    from gobrrr.integrations.notebook import load

    load(ipython)
