"""Attention in a traced graph: what is spelled out, product, softmax, product, made one call; masks that say no more
than a name made that name.
"""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gobrrr.treat.writes import known, may_change, memory_of, memory_written, name_of

if TYPE_CHECKING:
    from torch.fx import Graph, Node


@dataclass(frozen=True, slots=True)
class Spelled:
    """Attention found in a graph: its last product, and what it is made of."""

    output: "Node"
    query: "Node"
    key_t: "Node"
    """Transposed already."""
    value: "Node"
    mask: "Node | None"
    leaves_out: bool
    """The mask says what is left out, instead of what is added."""
    rate: float
    """Of dropout."""
    scale: float
    scores: "tuple[Node, ...]"
    """All between the two products, and at last the first of them."""


def made_one_call(graph: "Graph") -> None:
    """Every attention that is spelled out becomes a call of scaled_dot_product_attention. What it was stays unused."""
    nodes = list(graph.nodes)
    writers = [(place, node, memory_written(node)) for place, node in enumerate(nodes) if memory_written(node)]
    for place, node in enumerate(nodes):
        found = spelled(node)
        if found is not None and not _is_written_into(found, nodes, place, writers):
            _replace(graph, found)


def _is_written_into(
    found: "Spelled", nodes: "list[Node]", output: int, writers: "list[tuple[int, Node, frozenset[int]]]"
) -> bool:
    """By anybody but its own parts: into its scores at any time, as a mask is filled in, or into what it is made of
    before the last product, where one call reads it all.
    """
    scores = frozenset[int]().union(*map(memory_of, found.scores))
    operands = frozenset[int]().union(*map(memory_of, (found.query, found.key_t, found.value, found.mask)))
    first = nodes.index(found.scores[-1])
    return any(
        writer not in found.scores and (written & scores or (first < place < output and written & operands))
        for place, writer, written in writers
    )


def spelled(node: "Node") -> Spelled | None:
    """Whether this product is the last of an attention: walks back from it."""
    if not _is_product(node):
        return None
    weights: Any
    value: Any
    weights, value = node.args
    rate, softmax = _undropped(_uncast(weights))
    softmax = _uncast(softmax)
    if not _calls(softmax, "softmax") or not _is_along_last(softmax) or len(softmax.users) > 1:
        return None
    if rate and _is_read_elsewhere(weights, softmax):
        return None
    masked = _uncast(softmax.args[0])
    scores, mask, leaves_out = _unmasked(masked)
    scale, product = _unscaled(scores)
    if not _is_product(product):
        return None
    between = weights, softmax, masked, scores, product
    found = Spelled(node, product.args[0], product.args[1], value, mask, leaves_out, rate, scale, between)
    return found if _fits(found) else None


def _is_read_elsewhere(weights: "Node", softmax: "Node") -> bool:
    """Whoever else reads weights of which some were dropped means those that the last product read: one call would drop
    others.
    """
    while weights is not softmax:
        if len(weights.users) > 1:
            return True
        weights = argument(weights, 0, "input")
    return False


def _fits(found: Spelled) -> bool:
    """Four dimensions of one type, and a mask that spreads over the scores."""
    operands = [known(one) for one in (found.query, found.key_t, found.value)]
    if any(one is None or one.dim() != 4 or one.dtype != operands[0].dtype for one in operands):
        return False
    mask = None if found.mask is None else known(found.mask)
    return found.mask is None or (mask is not None and mask.dim() <= 4 and _is_mask(mask, found))


def _is_mask(mask: Any, found: Spelled) -> bool:
    import torch

    return bool(mask.dtype == torch.bool) if found.leaves_out else bool(mask.is_floating_point())


def _replace(graph: "Graph", found: Spelled) -> None:
    import torch

    with graph.inserting_before(found.output):
        key = graph.call_method("transpose", (found.key_t, -2, -1))
        mask = found.mask
        if mask is not None and found.leaves_out:
            mask = graph.call_method("logical_not", (mask,))
        elif mask is not None:
            mask = graph.call_method("to", (mask, known(found.query).dtype))
        options: dict[str, Any] = {"attn_mask": mask, "dropout_p": found.rate, "scale": found.scale}
        attention: Any = torch.nn.functional.scaled_dot_product_attention
        new = graph.call_function(attention, (found.query, key, found.value), options)
    new.meta.update(found.output.meta)
    found.output.replace_all_uses_with(new)
    graph.erase_node(found.output)


def masks_named(graph: "Graph") -> None:
    """A constant mask that leaves nothing out is none, and one that leaves the future out is called causal: with a mask
    there is no flash attention.
    """
    written = frozenset[int]().union(*map(memory_written, graph.nodes))
    for node in attention_nodes(graph):
        mask = _constant(argument(node, 3, "attn_mask"), written)
        if mask is None or str(mask.dtype) != "torch.bool":
            continue
        causal = not bool(mask.all())
        if not causal or _is_causal(mask, node):
            set_argument(node, 3, "attn_mask", None)
            set_argument(node, 5, "is_causal", causal)


def _is_causal(mask: Any, node: "Node") -> bool:
    """As many queries as there are values, and each sees those up to its own."""
    query, value = (known(argument(node, place, name)) for place, name in ((0, "query"), (2, "value")))
    if query is None or value is None or not mask.shape[-2] == mask.shape[-1] == query.shape[-2] == value.shape[-2]:
        return False
    return bool((mask == mask.new_ones(mask.shape[-2:]).tril()).all())


def read_in_place(graph: "Graph") -> None:
    """Keys and values joined to those of an empty cache are but copied: attention reads them where they are."""
    import torch

    attending = set(attention_nodes(graph))
    for node in graph.find_nodes(op="call_function", target=torch.cat):
        if not node.users or not attending.issuperset(node.users) or _changes_before_read(node):
            continue
        part = _only_part(node)
        if part is not None:
            node.replace_all_uses_with(part)
            graph.erase_node(node)


def _only_part(joined: "Node") -> "Node | None":
    """What is joined to nothing, where all sizes are known."""
    parts = [one for one in argument(joined, 0, "tensors") if not _is_empty(known(one))]
    if len(parts) != 1 or known(parts[0]) is None:
        return None
    whole, part = known(joined), known(parts[0])
    sizes = (*whole.shape, *part.shape)
    alike = all(isinstance(size, int) for size in sizes) and (whole.shape, whole.dtype) == (part.shape, part.dtype)
    return parts[0] if alike else None


def _is_empty(tensor: Any) -> bool:
    """For certain: a size that only the data tell is asked nothing."""
    return tensor is not None and any(isinstance(size, int) and size == 0 for size in tensor.shape)


def _changes_before_read(node: "Node") -> bool:
    readers, after = set(node.users), node.next
    while readers:
        if after in readers:
            readers.remove(after)
        elif may_change(after):
            return True
        after = after.next
    return False


MAKING_MASKS = frozenset(
    "ones zeros full arange new_ones new_zeros new_full ones_like zeros_like full_like tril triu where masked_fill "
    "lt le gt ge eq ne add sub mul neg abs and_ or_ xor invert not_ logical_and logical_or logical_not logical_xor "
    "bitwise_and bitwise_or bitwise_not bitwise_xor bool to type float int long view reshape unsqueeze squeeze expand "
    "repeat flatten transpose permute getitem t contiguous detach cat stack".split()
)
"""What they give depends on their arguments alone, and is no other each time."""


def _constant(node: Any, written: frozenset[int]) -> Any:
    """The value of a node that depends on no input, and that nobody writes into, computed; else None."""
    from torch.fx import Node
    from torch.fx.node import map_arg

    if not isinstance(node, Node) or name_of(node) not in MAKING_MASKS or not memory_of(node).isdisjoint(written):
        return None
    values = {one: _constant(one, written) for one in node.all_input_nodes}
    if any(value is None for value in values.values()):
        return None
    args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
    if isinstance(node.target, str):
        return getattr(args[0], node.target)(*args[1:], **kwargs)
    return node.target(*args, **kwargs)


# **** reading a traced graph ****


def attention_heard(note: Callable[..., None]) -> AbstractContextManager[None]:
    """Every call of scaled_dot_product_attention meanwhile."""
    import torch

    return calls_heard(torch.nn.functional.scaled_dot_product_attention, note)


@contextmanager
def calls_heard(function: Callable[..., Any], note: Callable[..., None]) -> Iterator[None]:
    """Every call of a function of torch's meanwhile, with its arguments, before it is made."""
    from torch.overrides import TorchFunctionMode

    class Calls(TorchFunctionMode):
        def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func is function:
                note(*args, **(kwargs or {}))
            return func(*args, **(kwargs or {}))

    with Calls():
        yield


def attention_nodes(graph: "Graph") -> "list[Node]":
    import torch

    return list(graph.find_nodes(op="call_function", target=torch.nn.functional.scaled_dot_product_attention))


def is_transformed(graph: "Graph") -> bool:
    """By a transform of functions, which wants to know more of a new one than its gradient."""
    return any("functorch" in str(getattr(node.target, "__module__", None)) for node in graph.nodes)


def argument(node: "Node", place: int, name: str, default: Any = None) -> Any:
    return node.args[place] if len(node.args) > place else node.kwargs.get(name, default)


def set_argument(node: "Node", place: int, name: str, value: Any) -> None:
    if len(node.args) > place:
        node.update_arg(place, value)
    else:
        node.update_kwarg(name, value)


def _calls(node: Any, *names: str) -> bool:
    """A function or method of one of these names, whoever offers it."""
    op = getattr(node, "op", None)
    name = node.target if op == "call_method" else getattr(getattr(node, "target", None), "__name__", None)
    return op in ("call_method", "call_function") and name in names


def _is_product(node: Any) -> bool:
    return _calls(node, "matmul", "bmm") and len(node.args) == 2


def _is_along_last(softmax: "Node") -> bool:
    dim = softmax.kwargs.get("dim", softmax.args[1] if len(softmax.args) > 1 else None)
    found = known(softmax)
    return bool(dim == -1 or (found is not None and dim == found.dim() - 1))


def _uncast(node: Any) -> Any:
    """Behind a change of type: a fused kernel computes scores in fp32 anyway."""
    while _calls(node, "to", "float", "type_as") and known(node) is not None and known(node).is_floating_point():
        node = node.args[0]
    return node


def _undropped(node: Any) -> tuple[float, Any]:
    if not _calls(node, "dropout"):
        return 0.0, node
    given = {
        "p": 0.5,
        "training": True,
        **dict(zip(("input", "p", "training"), node.args, strict=False)),
        **node.kwargs,
    }
    return (float(given["p"]) if given["training"] else 0.0), given["input"]


def _unmasked(scores: Any) -> tuple[Any, Any, bool]:
    """Scores before a mask: filled with minus infinity, or added to. A finite number is not what a mask means: where
    everything is left out it gives equal weights.
    """
    if getattr(scores, "kwargs", None):
        return scores, None, False
    if _calls(scores, "masked_fill", "masked_fill_") and scores.args[2:] == (-math.inf,):
        return scores.args[0], scores.args[1], True
    if _calls(scores, "add", "iadd") and len(scores.args) == 2 and known(scores.args[1]) is not None:
        return scores.args[0], scores.args[1], False
    return scores, None, False


def _unscaled(scores: Any) -> tuple[float, Any]:
    if not _calls(scores, "mul", "truediv", "div") or len(scores.args) != 2 or scores.kwargs:
        return 1.0, scores
    one, other = scores.args
    if isinstance(other, float | int):
        return (float(other) if _calls(scores, "mul") else 1 / other), one
    return (float(one), other) if isinstance(one, float | int) and _calls(scores, "mul") else (1.0, scores)
