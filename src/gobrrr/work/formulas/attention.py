"""Fused attention: two products around a softmax whose scores never reach memory.

For B sequences, H query heads, Sq queries, Sk keys, and head sizes D (query, key) and E (value):

    scores = Q·Kᵀ   2·B·H·Sq·Sk·D         out = P·V   2·B·H·Sq·Sk·E

`flops_dense` counts every score. Needed are those that the causal mask leaves: half of a square. The backward
of a flash kernel recomputes the scores and forms dV, dP, dQ and dK, five products for the forward's two: 2.5
forwards. Keys and values may have fewer heads than queries (grouped-query attention): that saves bytes, no FLOPs.
torch's counter raises on them before 2.12 and has no formula for the CPU's kernel; so the closed form is ours.

Bytes are Q, K, V, O, the row statistics and a mask if there is one: never Sq·Sk. The exponentials are counted as
evaluations, for floors, but not as reported FLOPs: nobody reports them of a kernel that never shows its scores.
"""

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.work.call import Call
from gobrrr.work.formulas.matmul import math_mode
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


@dataclass(frozen=True, slots=True)
class Extent:
    """The sizes of an attention."""

    batch: int
    heads: int
    queries: int
    keys: int
    head: int
    value_head: int
    causal: bool
    from_the_end: bool = False
    """A causal mask ties the last query to the last key, not the first to the first: it matters if lengths differ."""

    @property
    def scores(self) -> float:
        return self.batch * self.heads * self.queries * self.keys

    @property
    def needed_scores(self) -> float:
        """Under a causal mask the query i sees the keys up to i: half of the square that both sides share.

        Counted from the start, queries beyond the last key see all keys, and keys beyond the last query are seen by
        none; counted from the end, all queries see the keys before the square, and the queries before it see none.
        """
        if not self.causal:
            return self.scores
        square = min(self.queries, self.keys)
        beside = (self.keys - square) * self.queries if self.from_the_end else (self.queries - square) * self.keys
        pairs = square * square / 2 + beside
        return self.batch * self.heads * pairs

    def forward_flops(self, scores: float) -> float:
        return 2 * scores * (self.head + self.value_head)

    def backward_flops(self, scores: float) -> float:
        """Scores again, dQ and dK run over D; dP and dV over E."""
        return 2 * scores * (3 * self.head + 2 * self.value_head)


_BOTTOM_RIGHT = 2
"""The custom_mask_type of the efficient kernels that counts from the end."""


def _from_the_end(call: Call) -> bool:
    """Flash kernels on a GPU count from the end, the CPU's and all others from the start unless told."""
    flash = "flash" in call.name and "for_cpu" not in call.name
    return flash or call.args.get("custom_mask_type") == _BOTTOM_RIGHT


def heads_first(call: Call) -> Extent:
    """Layout B, H, S, D: the scaled_dot_product ops."""
    batch, heads, queries, head = call["query"].shape
    return Extent(
        batch,
        heads,
        queries,
        call["key"].shape[-2],
        head,
        call["value"].shape[-1],
        bool(call.args.get("is_causal")),
        _from_the_end(call),
    )


def tokens_first(call: Call) -> Extent:
    """Layout B, S, H, D, or packed sequences without a batch dimension: the kernels below the scaled ones.

    cuDNN's takes packed sequences alike, but a batch with the heads first. The lengths of packed sequences lie on the
    device, so each counts with the longest, as torch does.
    """
    query, key = call["query"], call["key"]
    causal = bool(call.args.get("is_causal")) or bool(call.args.get("custom_mask_type"))
    *_, heads, head = query.shape
    offsets = next((call.args[name] for name in ("cum_seq_q", "cu_seqlens_q") if call.args.get(name)), None)
    if offsets is None and "cudnn" in call.name:
        return heads_first(call)
    value_head, from_the_end = call["value"].shape[-1], _from_the_end(call)
    if offsets is None:
        return Extent(query.shape[0], heads, query.shape[1], key.shape[1], head, value_head, causal, from_the_end)
    longest_query = call.args.get("max_q") or call.args.get("max_seqlen_q") or query.shape[-3]
    longest_key = call.args.get("max_k") or call.args.get("max_seqlen_k") or key.shape[-3]
    return Extent(offsets.shape[0] - 1, heads, longest_query, longest_key, head, value_head, causal, from_the_end)


def attend(call: Call, extent: Extent, flops: Callable[[float], float]) -> Work:
    """Work of an attention kernel, given the FLOPs as a function of the number of scores."""
    needed, dropped = extent.needed_scores, call.args.get("dropout_p") or 0
    return counted(
        call,
        matrix={math_mode(call, call["query"]): flops(needed)},
        flops_dense=flops(extent.scores),
        vector={"exp": needed, "fma": 4 * needed, "random": needed if dropped else 0},
    )


@formula(
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_cudnn_attention",
    "_scaled_dot_product_fused_attention_overrideable",
    "_scaled_dot_product_attention_math_for_mps",
    cls=OpClass.CONTRACTION,
)
def scaled_attention(call: Call) -> Work:
    extent = heads_first(call)
    return attend(call, extent, extent.forward_flops)


@formula(
    "_scaled_dot_product_flash_attention_backward",
    "_scaled_dot_product_flash_attention_for_cpu_backward",
    "_scaled_dot_product_efficient_attention_backward",
    "_scaled_dot_product_cudnn_attention_backward",
    "_scaled_dot_product_fused_attention_overrideable_backward",
    cls=OpClass.CONTRACTION,
)
def scaled_attention_backward(call: Call) -> Work:
    extent = heads_first(call)
    return attend(call, extent, extent.backward_flops)


@formula("_native_multi_head_attention", cls=OpClass.CONTRACTION)
def attention_module(call: Call) -> Work:
    """A module's inference in one op: queries, keys and values projected, the attention, its output projected."""
    return _with_projections(call, call["query"], call["key"], call["num_head"], weights=0, elements=0)


@formula("_transformer_encoder_layer_fwd", cls=OpClass.CONTRACTION)
def encoder_layer(call: Call) -> Work:
    """An attention module, two more products, an activation, two norms of seven FLOPs and two sums an element."""
    source, up, down = call["src"], call["ffn_weight_1"], call["ffn_weight_2"]
    elements = (2 * 7 + 2) * source.numel + source.numel // source.shape[-1] * up.shape[0]
    weights = up.numel + down.numel
    return _with_projections(call, source, source, call["num_heads"], weights=weights, elements=elements)


def _with_projections(call: Call, query: TensorRef, key: TensorRef, heads: int, *, weights: int, elements: int) -> Work:
    """Two projections of the queries and two of the keys, the attention, and further weights that meet each query."""
    batch, queries, width = query.shape
    extent = Extent(batch, heads, queries, key.shape[1], width // heads, width // heads, causal=False)
    products = 2 * batch * (2 * width * width * (queries + extent.keys) + weights * queries)
    flops = products + extent.forward_flops(extent.scores)
    return counted(
        call,
        matrix={math_mode(call, query): flops},
        flops_dense=flops,
        vector_flops=elements,
        vector={"exp": extent.scores, "fma": 4 * extent.scores + elements},
    )


@formula(
    "_flash_attention_forward",
    "_efficient_attention_forward",
    "_cudnn_attention_forward",
    cls=OpClass.CONTRACTION,
)
def packed_attention(call: Call) -> Work:
    extent = tokens_first(call)
    return attend(call, extent, extent.forward_flops)


@formula(
    "_flash_attention_backward",
    "_efficient_attention_backward",
    "_cudnn_attention_backward",
    cls=OpClass.CONTRACTION,
)
def packed_attention_backward(call: Call) -> Work:
    extent = tokens_first(call)
    return attend(call, extent, extent.backward_flops)
