"""Optional packages: loaded where they are needed, and missed in one sentence that says what to install."""

from importlib import import_module
from types import ModuleType

from gobrrr.errors import Missing


def need(module: str, extra: str) -> ModuleType:
    """The module, or a `Missing` that names the extra which brings it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != module.partition(".")[0]:
            raise
        raise Missing(f"{module} is needed here and not installed: pip install 'gobrrr[{extra}]'") from None
