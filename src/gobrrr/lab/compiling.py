"""torch.compile where it works, and the reason where it does not: it needs a C++ compiler, and on a GPU Triton."""

import os
from collections.abc import Callable
from typing import Any

from gobrrr.lab.site import NotHere


def compiled(function: Callable[..., Any], *args: Any) -> Callable[[], Any]:
    """A step that calls the compiled function with these arguments; compiled now, so that what is missing shows.

    The compiler forgets what it had before: variants of one function would count as recompilations of it, and after
    eight of those it gives up. And it works in this process: a pool of compilers would run beside what is timed.
    """
    import torch

    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")
    torch.compiler.reset()
    fast: Callable[..., Any] = torch.compile(function, dynamic=False, fullgraph=True)
    try:
        fast(*args)
    except Exception as error:
        first_line = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise NotHere(f"torch.compile does not work here: {first_line}") from error
    return lambda: fast(*args)
