"""What a program does with compilers: whether it calls one, and what its model does when one looks at it.

Libraries ask `torch.compiler.is_compiling()` and take other ways. Assumed, and held by a test: the answer is a private
flag of torch.compiler, and a module is called through `torch.nn.Module.__call__`.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch


@contextmanager
def as_traced() -> Iterator[None]:
    """Modules take the way that they take under torch.compile, and run it. The optimizer is not compiled with them."""
    call = torch.nn.Module.__call__

    def traced(module: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        with mock.patch.object(torch.compiler, "_is_compiling_flag", new=True):
            return call(module, *args, **kwargs)

    with mock.patch.object(torch.nn.Module, "__call__", traced):
        yield


@contextmanager
def compile_modes() -> Iterator[list[str]]:
    """The mode of every torch.compile that is called meanwhile."""
    original, modes = torch.compile, list[str]()

    def noted(*args: Any, **kwargs: Any) -> Any:
        modes.append(kwargs.get("mode") or "default")
        return original(*args, **kwargs)

    with mock.patch.object(torch, "compile", noted):
        yield modes
