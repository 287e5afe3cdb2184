"""The code of models: what their modules do when they are called, so that another program is told from the same."""

import ast
import hashlib
import inspect
import sys
from functools import partialmethod
from types import FunctionType
from typing import TYPE_CHECKING, Any

from gobrrr.treat.subject import is_bare

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
"""Each reads code in its own way."""


def digest_of(models: "Iterable[torch.nn.Module]") -> str | None:
    """Of all classes in those that have parameters, led by Python's version; None where the code of one cannot be read,
    as in a shell. A loss is no model: who applies a prescription may not show it.
    """
    trained = [model for model in models if not is_bare(model)]
    codes = [_code_of(kind) for kind in {type(module) for model in trained for module in model.modules()}]
    known = sorted(code for code in codes if code is not None)
    return f"{PYTHON} {_hashed(known)}" if len(known) == len(codes) else None


def _hashed(lines: list[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def differ(one: str | None, other: str | None) -> bool:
    """Two digests, if they can be compared."""
    if one is None or other is None or one.partition(" ")[0] != other.partition(" ")[0]:
        return False
    return one != other


def _code_of(kind: type) -> str | None:
    """Its forward and the methods that are named there, and so on. Of torch's own the name: its version is compared
    anyway. Others may be named anew, as what was traced is when it is copied.
    """
    found: dict[str, str] = {}
    ahead = ["forward"]
    while ahead:
        name = ahead.pop()
        method = _method(inspect.getattr_static(kind, name, None))
        if name in found or method is None or _is_torchs_own(method):
            continue
        tree = _parsed(method)
        if tree is None:
            return None
        found[name] = ast.dump(tree)
        ahead += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    return "\n".join(found[name] for name in sorted(found)) or kind.__name__


def _method(thing: Any) -> Any:
    """What is called in the end; None where nothing is."""
    if isinstance(thing, staticmethod | classmethod):
        return _method(thing.__func__)
    if isinstance(thing, property):
        return _method(thing.fget)
    if isinstance(thing, partialmethod):
        return _method(thing.func)
    return inspect.unwrap(thing) if callable(thing) and not isinstance(thing, type) else None


def _is_torchs_own(method: Any) -> bool:
    return str(getattr(method, "__module__", "")).partition(".")[0] == "torch"


def _parsed(method: Any) -> ast.Module | None:
    """As Python reads it, without comments and without what is said in its first lines; None where nobody can."""
    if not isinstance(method, FunctionType):
        return None
    try:
        source = inspect.getsource(method)
        tree = ast.parse(f"if True:\n{source}" if source[:1].isspace() else source)
    except (OSError, TypeError, ValueError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return tree
