"""Writes in a traced graph: which nodes may change what others read, and in which memory.

Tensors of a traced graph have no data, but views of one share its memory all the same.
"""

from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.contents import storage_id

if TYPE_CHECKING:
    from torch.fx import Graph, Node

IN_PLACE = frozenset(
    "setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor imatmul ilshift irshift".split()
)

IF_TOLD = frozenset(
    "relu relu6 leaky_relu elu selu celu rrelu silu mish threshold hardtanh hardswish hardsigmoid dropout dropout1d "
    "dropout2d dropout3d alpha_dropout feature_alpha_dropout batch_norm instance_norm".split()
)
"""Into what they read, or statistics: by an argument whose place nobody counts here."""

OF_PYTHON = frozenset({"and_", "or_", "not_", "is_"})
"""Their names end as if they wrote: they are Python's words."""


def name_of(node: "Node") -> str | None:
    """Of the function or method that is called."""
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target)) if node.op == "call_function" else None


def known(node: Any) -> Any:
    """The tensor that it stands for, without data."""
    return getattr(node, "meta", {}).get("example_value")


def may_change(node: "Node") -> bool:
    """Writes into a tensor or changes how what follows is computed, or nobody knows."""
    return _writes_first(node) or _may_write_all(node) or (name_of(node) or "").startswith(("_enter", "_exit", "_set"))


def memory_of(node: Any) -> frozenset[int]:
    """Where the tensors lie that it stands for; those of transforms lie nowhere."""
    from torch import Tensor
    from torch.utils._pytree import tree_leaves

    tensors = [one for one in tree_leaves(known(node)) if isinstance(one, Tensor)]
    try:
        return frozenset(storage_id(one.untyped_storage()) for one in tensors)
    except RuntimeError:  # not implemented is one
        return frozenset()


def memory_written(node: "Node") -> frozenset[int]:
    """Where a node may write."""
    if _may_write_all(node):
        return _all_memory_of(node.all_input_nodes)
    return memory_of(node.args[0]) if _writes_first(node) and node.args else frozenset()


def memory_given_back(graph: "Graph") -> frozenset[int]:
    """What whoever called the graph may write into afterwards."""
    return _all_memory_of([one for node in graph.find_nodes(op="output") for one in node.all_input_nodes])


def _all_memory_of(nodes: "list[Node]") -> frozenset[int]:
    return frozenset().union(*map(memory_of, nodes))


def _writes_first(node: "Node") -> bool:
    """Into its first argument, and no other."""
    name = name_of(node)
    if name is None or name in OF_PYTHON or name.endswith("__"):
        return False
    return name in IN_PLACE or name.endswith("_")


def _may_write_all(node: "Node") -> bool:
    """Into any argument: an operator of somebody's own, a module that nobody looked into, and what is told to."""
    if node.op == "call_module":
        return True
    if node.op not in ("call_function", "call_method"):
        return False
    told = name_of(node) in IF_TOLD and any(one is True for one in (*node.args, *node.kwargs.values()))
    return told or _is_operator(node.target) or "out" in node.kwargs or node.kwargs.get("inplace") is True


def _is_operator(target: object) -> bool:
    """One of torch's: by those kernels of one's own are called."""
    return any(kind.__module__ == "torch._ops" for kind in type(target).__mro__)
