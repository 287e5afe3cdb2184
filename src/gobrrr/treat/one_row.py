"""Products of one row in a traced graph, and attention of one query, written by their definition.

A library's kernel for them has nothing to keep on the chip: all that it does is read a matrix once. Generated code does
that as well, and fuses with what is around.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gobrrr.treat.attention import argument, attention_nodes, is_transformed
from gobrrr.treat.compiling import written
from gobrrr.treat.writes import known

if TYPE_CHECKING:
    import torch


def rows_spelled_out(graph: "torch.fx.Graph") -> None:
    import torch

    if is_transformed(graph):
        return
    for node in graph.find_nodes(op="call_function", target=torch.nn.functional.linear):
        row, matrix = (known(argument(node, place, name)) for place, name in ((0, "input"), (1, "weight")))
        if _of_one_type(row, matrix, known(node)) and matrix.dim() == 2 and row.numel() == row.shape[-1]:
            _replace(graph, node, row_product)


def row_product(input: "torch.Tensor", weight: "torch.Tensor", bias: "torch.Tensor | None" = None) -> "torch.Tensor":  # noqa: A002 (the signature of what it stands for)
    """Summed in fp32 or wider, as a kernel has it. The row is written to memory first: else it is computed anew for
    every row of the matrix, and arithmetic holds up what should only read.
    """
    summed = (_wide(written(input).unsqueeze(-2)) * _wide(weight)).sum(-1)
    return (summed if bias is None else summed + bias).to(input.dtype)


def _wide(tensor: "torch.Tensor") -> "torch.Tensor":
    import torch

    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def queries_spelled_out(graph: "torch.fx.Graph") -> None:
    """For one query a flash kernel has nothing to keep on the chip; spelled out, its parts fuse with what is around."""
    for node in attention_nodes(graph):
        query, key, value = (known(argument(node, place, name)) for place, name in enumerate(("query", "key", "value")))
        if not _of_one_type(query, key, value, known(node)) or query.dim() != 4 or query.shape[-2] != 1:
            continue
        if not query.shape[0] == key.shape[0] == value.shape[0] or key.shape[1] != value.shape[1]:
            continue
        if query.shape[1] % key.shape[1]:
            continue
        if argument(node, 4, "dropout_p", 0.0):
            continue
        _replace(graph, node, spelled_out)


def _of_one_type(*tensors: Any) -> bool:
    """Known, real, and alike, as they are not under autocast: it casts what it knows by name."""
    types = {getattr(one, "dtype", None) for one in tensors}
    return len(types) == 1 and all(one is not None and one.is_floating_point for one in types)


def _replace(graph: "torch.fx.Graph", node: "torch.fx.Node", function: Callable[..., Any]) -> None:
    """By a function of the same arguments."""
    with graph.inserting_before(node):
        spelled = graph.call_function(function, node.args, dict(node.kwargs))
    spelled.meta.update(node.meta)
    node.replace_all_uses_with(spelled)
    graph.erase_node(node)


def spelled_out(
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attn_mask: "torch.Tensor | None" = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 (the signature of what it stands for)
    *,
    scale: float | None = None,
    **_gqa: Any,
) -> "torch.Tensor":
    """Attention of one query by its definition, in fp32 or wider as a kernel has it; heads that share keys are a
    dimension.

    For one query, causal means the first key alone: torch aligns the mask at the upper left. A query whose keys are all
    masked finds nothing: zeros, as torch has it.
    """
    import torch

    del dropout_p
    batch, heads, _, width = query.shape
    shared = key.shape[1]
    grouped = _wide(query.reshape(batch, shared, heads // shared, 1, width))
    keys, values = _wide(key[:, :, None]), _wide(value[:, :, None])
    scores = (grouped * keys).sum(-1) * (width**-0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.arange(scores.shape[-1], device=scores.device) > 0, float("-inf"))
    if attn_mask is not None:
        spread = attn_mask.expand(batch, heads, 1, attn_mask.shape[-1]).reshape(batch, shared, heads // shared, -1)
        scores = scores.masked_fill(~spread, float("-inf")) if spread.dtype == torch.bool else scores + spread
    weights = scores.softmax(-1) if attn_mask is None else _softmax_of_some(scores)
    found = (weights[..., None] * values).sum(-2)
    return found.reshape(batch, heads, 1, value.shape[-1]).to(query.dtype)


def _softmax_of_some(scores: "torch.Tensor") -> "torch.Tensor":
    """Zeros where nothing is left, and there no gradient: it would be none of a number."""
    import torch

    greatest = scores.detach().amax(-1, keepdim=True)
    likely = (scores - torch.where(greatest == float("-inf"), 0.0, greatest)).exp()
    total = likely.sum(-1, keepdim=True)
    return likely / torch.where(total == 0.0, 1.0, total)
