"""What a model does when a compiler looks at it: libraries ask `torch.compiler.is_compiling()` and take other ways.

Assumed, and held by a test: the answer is a private flag of torch.compiler, and a module is called through
`torch.nn.Module.__call__`.
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
