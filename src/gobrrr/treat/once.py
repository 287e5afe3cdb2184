"""Products of the same operands, in a traced graph, computed once: layers that share one each ask for all of it."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Graph, Node

SHARED = ("linear", "mul", "to")
"""Products, and what they make of a weight that is int8."""

IN_PLACE = (
    "setitem",
    "iadd",
    "isub",
    "imul",
    "itruediv",
    "ifloordiv",
    "imod",
    "ipow",
    "iand",
    "ior",
    "ixor",
    "imatmul",
)


def computed_once(graph: "Graph") -> None:
    """What was computed from the same operands before is taken, unless something between may have changed them."""
    known: dict[Any, Node] = {}
    for node in list(graph.nodes):
        if may_change(node):
            known.clear()
        elif name_of(node) in SHARED:
            first = known.setdefault((node.target, node.args, tuple(node.kwargs.items())), node)
            if first is not node:
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def may_change(node: "Node") -> bool:
    """Writes into a tensor or changes how what follows is computed, or nobody knows."""
    name = name_of(node)
    if name is None:
        return node.op == "call_module"
    if type(node.target).__module__ == "torch._ops" or name in IN_PLACE or name.endswith("_"):
        return True
    given = (*node.args, *node.kwargs.values())
    return name.startswith(("_enter", "_exit", "_set")) or "out" in node.kwargs or any(one is True for one in given)


def name_of(node: "Node") -> str | None:
    """Of the function or method that is called."""
    if node.op == "call_method":
        return str(node.target)
    return getattr(node.target, "__name__", str(node.target)) if node.op == "call_function" else None
