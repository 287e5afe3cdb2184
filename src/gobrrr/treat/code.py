"""The code of models: what their modules do when they are called, so that another program is told from the same."""

import ast
import hashlib
import inspect
import textwrap
from types import FunctionType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    import torch


def digest_of(models: "Iterable[torch.nn.Module]") -> str | None:
    """Of all classes in them; None where the code of one cannot be read, as in a shell."""
    kinds = {type(module) for model in models for module in model.modules()}
    codes = [_code_of(kind) for kind in kinds]
    known = sorted(code for code in codes if code is not None)
    return hashlib.sha256("\n".join(known).encode()).hexdigest()[:16] if len(known) == len(codes) else None


def _code_of(kind: type) -> str | None:
    """Its forward and the methods that are named there, and so on. Torch's own are left out: its version is compared
    anyway.
    """
    found: dict[str, str | None] = {}
    ahead = ["forward"]
    while ahead:
        name = ahead.pop()
        method = inspect.getattr_static(kind, name, None)
        if name in found or not isinstance(method, FunctionType):
            continue
        method = inspect.unwrap(method)
        if str(method.__module__).partition(".")[0] != "torch":
            found[name] = _without_words(method)
            ahead += method.__code__.co_names
    codes = [found[name] for name in sorted(found)]
    known = [code for code in codes if code is not None]
    return "\n".join([kind.__name__, *known]) if len(known) == len(codes) else None


def _without_words(function: FunctionType) -> str | None:
    """As Python reads it, without comments and without what is said in its first lines."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    except (OSError, TypeError, SyntaxError):
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:] or [ast.Pass()]
    return ast.unparse(tree)
