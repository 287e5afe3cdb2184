"""A loss over logits, in a traced graph: rows that begin at round places, read to their padded end, as often as needed.

Logits of an odd number of classes are the slowest tensor of many a training step. Padded by `padded-products` their
products are fast, but a loss that reads the part without the padding reads it number by number: neither the ends of its
rows nor the condition that stops there fall on a vector's. Read to the padded end, with minus infinity for what was
added, the loss is the same and its kernels, and that of its gradient, read whole vectors.

What is at stake, once compiled, at 4.3 TB/s: the loss reads the logits once, its gradient reads them and writes itself,
in bf16 6 bytes a logit. For GPT-2 of 8 × 1024 tokens (412 M logits) that is 0.57 ms, for BERT-large of 8 × 512 (125 M)
0.17 ms. BERT's compiled kernels took 0.45 ms on an H200, so of GPT-2's, at the same rate, some 0.9 of 20 ms are to be
gained. A loss in chunks moves the same bytes, some of them in the cache if a chunk is no more than 250 rows; but then
it reads and writes the gradient of the weights, 309 MB for GPT-2, 32 times, which takes 2.3 ms. So it saves memory
alone, and is not done here.

Decomposed, the gradient of a loss sums its own gradient over all classes first, though but one of them has any: one
more pass over as many numbers as there are logits. Written by its parts, what is right and what was thought likely, the
gradient is one pass.
"""

import math
from functools import cache
from typing import TYPE_CHECKING, Any

from gobrrr.treat.attention import argument, is_transformed, set_argument
from gobrrr.treat.writes import known, name_of

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, Node

RESHAPES = ("view", "reshape", "flatten")

PASSES_ON = ("float", "to", "contiguous", *RESHAPES)
"""What may stand between logits and loss, and leaves the classes the last dimension."""


def loss_over_padding(graph: "Graph") -> None:
    """Every loss over a part of a product's outputs reads all of them."""
    import torch

    for loss in graph.find_nodes(op="call_function", target=torch.nn.functional.cross_entropy):
        between = _between(argument(loss, 0, "input"))
        if between and _counts_classes_alone(loss) and _has_no_other_use(between[0]):
            _read_on(graph, loss, between)


def loss_by_its_parts(graph: "Graph") -> None:
    """Every loss that is fit for it."""
    import torch

    if is_transformed(graph):
        return
    for loss in graph.find_nodes(op="call_function", target=torch.nn.functional.cross_entropy):
        if _counts_classes_alone(loss) and known(loss) is not None:
            loss.target = by_its_parts
            loss.kwargs = {**loss.kwargs, "dtype": known(loss).dtype}  # autocast would know this one by its name alone


def by_its_parts(
    input: "torch.Tensor",  # noqa: A002 (the signature of what it stands for)
    target: "torch.Tensor",
    weight: None = None,
    size_average: None = None,
    ignore_index: int = -100,
    reduce: None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
    *,
    dtype: "torch.dtype",
) -> "torch.Tensor":
    """In fp32 at the least, as a kernel has it; given in the type that is asked for."""
    del weight, size_average, reduce, label_smoothing
    losses: torch.Tensor = _parts().apply(input, target, ignore_index)  # type: ignore[no-untyped-call]
    if reduction == "none":
        return losses.to(dtype)
    total = losses.sum()
    return (total / (target != ignore_index).sum() if reduction == "mean" else total).to(dtype)


@cache
def _parts() -> "type[torch.autograd.Function]":
    """Of each row: the logarithm of the sum of all likelihoods, less the right one's. Kept for the gradient are the
    logits and two numbers a row; which class is right is asked anew, for an answer kept would be as long as the logits.
    """
    import torch

    class Parts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, logits: "torch.Tensor", target: "torch.Tensor", ignored: int) -> "torch.Tensor":
            losses, greatest, likely = row_losses(logits, target, ignored)
            ctx.save_for_backward(logits, target, greatest, likely)
            ctx.ignored = ignored
            return losses

        @staticmethod
        def backward(ctx: Any, upstream: "torch.Tensor") -> "tuple[torch.Tensor, None, None]":
            logits, target, greatest, likely = ctx.saved_tensors
            return row_gradients(logits, target, greatest, likely, upstream, ctx.ignored), None, None

    return Parts


def row_losses(
    logits: "torch.Tensor", target: "torch.Tensor", ignored: int
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
    """Of each row; with its greatest logit and the sum of all likelihoods beside that one's."""
    import torch

    wide = _wide(logits)
    greatest = wide.amax(-1, keepdim=True)
    likely = (wide - greatest).exp().sum(-1, keepdim=True)
    place = target.masked_fill(target < 0, logits.shape[-1])  # of none: compilers would count from the end silently
    right = wide.gather(-1, place.masked_fill(target == ignored, 0).unsqueeze(-1))
    losses = torch.where(target == ignored, 0.0, (likely.log() + (greatest - right)).squeeze(-1))
    return losses, greatest, likely


def row_gradients(
    logits: "torch.Tensor",
    target: "torch.Tensor",
    greatest: "torch.Tensor",
    likely: "torch.Tensor",
    upstream: "torch.Tensor",
    ignored: int,
) -> "torch.Tensor":
    import torch

    weight = torch.where(target == ignored, 0.0, upstream).unsqueeze(-1)
    is_right = torch.arange(logits.shape[-1], device=logits.device) == target.unsqueeze(-1)
    chance = (_wide(logits) - greatest).exp() / likely
    return ((chance - is_right.to(chance.dtype)) * weight).to(logits.dtype)


def _wide(logits: "torch.Tensor") -> "torch.Tensor":
    import torch

    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _between(node: Any) -> list[Any]:
    """From the part of a product that is taken to what the loss reads; empty where it is not so."""
    found: list[Any] = []
    while _passes_on(node):
        found.append(node)
        node = node.args[0]
    return [node, *reversed(found)] if _is_first_part(node) else []


def _passes_on(node: Any) -> bool:
    """With as many classes as what it is made of."""
    if getattr(node, "op", None) not in ("call_method", "call_function") or not node.args:
        return False
    now, before = known(node), known(node.args[0])
    if now is None or before is None or now.shape[-1:] != before.shape[-1:]:
        return False
    return name_of(node) in PASSES_ON or (name_of(node) == "getitem" and _index(node)[-1] == slice(None))


def _is_first_part(node: Any) -> bool:
    """`linear(...)[..., :n]`."""
    if getattr(node, "op", None) != "call_function" or name_of(node) != "getitem" or name_of(node.args[0]) != "linear":
        return False
    index = _index(node)
    return len(index) == 2 and index[0] is Ellipsis and index[1] == slice(None, known(node).shape[-1])


def _index(node: Any) -> tuple[Any, ...]:
    return node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)


def _has_no_other_use(part: Any) -> bool:
    """Of the product nobody reads more than this part."""
    return all(_is_first_part(user) and _index(user) == _index(part) for user in part.args[0].users)


def _counts_classes_alone(loss: "Node") -> bool:
    """Rows of one number a class, and of each row one class is right: what smooths or weighs counts all of them."""
    logits, target = known(argument(loss, 0, "input")), known(argument(loss, 1, "target"))
    names = ((2, "weight"), (3, "size_average"), (5, "reduce"))
    plain = not any(argument(loss, *name) is not None for name in names) and not argument(loss, 7, "label_smoothing", 0)
    return plain and logits.dim() == 2 and target is not None and not target.is_floating_point()


def _read_on(graph: "Graph", loss: "Node", between: list[Any]) -> None:
    """The product itself gives what was added as minus infinity, by its bias."""
    product = node = between[0].args[0]
    width = known(product).shape[-1]
    with graph.inserting_before(product):
        bias = graph.call_function(
            shut_out, (product.args[1], argument(product, 2, "bias"), known(between[0]).shape[-1])
        )
        set_argument(product, 2, "bias", bias)
    with graph.inserting_before(loss):
        for one in between[1:]:
            if name_of(one) in RESHAPES:
                node = graph.call_method("reshape", (node, *known(one).shape[:-1], width))
            else:
                node = graph.create_node(one.op, one.target, (node, *one.args[1:]), dict(one.kwargs))
            node.meta["example_value"] = known(one).new_empty((*known(one).shape[:-1], width))
    set_argument(loss, 0, "input", node)


def shut_out(weight: "torch.Tensor", bias: "torch.Tensor | None", classes: int) -> "torch.Tensor":
    """A bias that makes all but the first classes as unlikely as can be."""
    import torch

    there = weight.new_zeros(len(weight)) if bias is None else bias
    return there.masked_fill(torch.arange(len(weight), device=weight.device) >= classes, -math.inf)
