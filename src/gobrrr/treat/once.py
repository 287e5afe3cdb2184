"""Products of the same operands, in a traced graph, computed once: layers that share one each ask for all of it."""

from typing import TYPE_CHECKING, Any

from gobrrr.treat.writes import may_change, memory_given_back, memory_of, memory_written, name_of

if TYPE_CHECKING:
    from torch.fx import Graph, Node

SHARED = ("linear", "mul", "to")
"""Products, and what they make of a weight that is int8."""


def computed_once(graph: "Graph") -> None:
    """What was computed from the same operands before is taken, unless something between may have changed them, or one
    of the two may be changed afterwards, here or by whoever is given both.
    """
    known: dict[Any, Node] = {}
    nodes, given_back = list(graph.nodes), memory_given_back(graph)
    written = [memory_written(node) for node in nodes]
    for place, node in enumerate(nodes):
        if may_change(node):
            known.clear()
        elif _may_be_shared(node):
            first = known.setdefault((node.target, node.args, tuple(node.kwargs.items())), node)
            one, other = memory_of(first), memory_of(node)
            changed = given_back if one & given_back and other & given_back else frozenset()
            if first is not node and (one | other).isdisjoint(changed.union(*written[place:])):
                node.replace_all_uses_with(first)
                graph.erase_node(node)


def _may_be_shared(node: "Node") -> bool:
    """Products with numbers are not worth it: 2 and 2.0 are one key, and make other products."""
    if name_of(node) not in SHARED:
        return False
    return name_of(node) != "mul" or all(hasattr(one, "op") for one in node.args)
