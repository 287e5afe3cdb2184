"""One op many times in a CUDA graph: what the device takes when no host is in the way."""

from collections.abc import Callable
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def captured(function: Callable[[], object], copies: int) -> "torch.cuda.CUDAGraph":
    """A graph of so many calls, one after the other.

    Warm-up runs on the stream of the capture, so that libraries make their handles and workspaces before it.
    """
    import torch

    side = _side_stream(torch.cuda.current_device())
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            function()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode="thread_local"):
        for _ in range(copies):
            function()
    return graph


@cache
def _side_stream(device: int) -> "torch.cuda.Stream":
    """One for all captures on a device: torch keeps a workspace for every stream that ever multiplied."""
    import torch

    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
