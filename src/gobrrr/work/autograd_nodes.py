"""Which forward op a backward op belongs to: torch's private view of the running autograd node.

Assumed, and held by a test: an op's node is made just before the op is dispatched and takes the next sequence
number, as does the node of a custom `autograd.Function` before its forward runs; while the backward pass runs, the
current node carries the number of the forward op that made it. The profiler links forward and backward ops the same
way.
"""

from typing import Any

import torch


def made_sequence_number() -> int:
    """Number of the node made last: in the forward pass, that of the op being dispatched if it needs one."""
    number: int = torch.autograd._get_sequence_nr() - 1  # type: ignore[attr-defined]  # noqa: SLF001
    return number


def in_backward() -> bool:
    return torch._C._current_graph_task_id() != -1  # noqa: SLF001


def running_node() -> Any:
    """The node whose backward runs now, or None."""
    return torch._C._current_autograd_node()  # noqa: SLF001


def sequence_number(node: Any) -> int:
    number: int = node._sequence_nr()  # noqa: SLF001
    return number
