"""Fused attention: 4·B·H·Sq·Sk·D FLOPs, half under a causal mask, and never a byte for the scores."""

from functools import partial
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from counting import SIZES, call, few, formula_of, launched, moved, named, only, touched_bytes, work_of
from gobrrr.work.op import OpClass

aten = torch.ops.aten
CPU = "_scaled_dot_product_flash_attention_for_cpu"
LENGTHS = st.integers(1, 9)


def visible(queries: int, keys: int, *, from_the_end: bool = False) -> float:
    """Scores that a causal mask leaves, counted one by one, those on its edge as half: S²/2 of a square."""
    mask = torch.ones(queries, keys).tril(keys - queries if from_the_end else 0)
    return mask.sum().item() - min(queries, keys) / 2


class Heads(NamedTuple):
    """An attention with grouped heads, a longer memory than queries, and values narrower than keys."""

    batch: int = 2
    heads: int = 8
    groups: int = 2
    queries: int = 12
    keys: int = 20
    head: int = 16
    value_head: int = 16

    @property
    def pairs(self) -> int:
        return self.queries * self.keys

    def forward_flops(self, pairs: float) -> float:
        """Scores over the head, and values over theirs: 2 FLOPs per multiply-add."""
        return 2 * self.batch * self.heads * pairs * (self.head + self.value_head)

    def backward_flops(self, pairs: float) -> float:
        """Scores again, dQ, dK over the head; dP and dV over the values': 2.5 forwards when both are one size."""
        return 2 * self.batch * self.heads * pairs * (3 * self.head + 2 * self.value_head)

    def tensors(self, device: str = "meta", dtype: torch.dtype = torch.bfloat16) -> list[torch.Tensor]:
        """Query, key and value with the heads first."""
        shapes = [
            (self.batch, self.heads, self.queries, self.head),
            (self.batch, self.groups, self.keys, self.head),
            (self.batch, self.groups, self.keys, self.value_head),
        ]
        return [torch.ones(shape, device=device, dtype=dtype) for shape in shapes]


def bytes_of(*values: object) -> int:
    return sum(value.numel() * value.itemsize for value in values if isinstance(value, torch.Tensor))


@few
@given(SIZES, SIZES, LENGTHS, LENGTHS, SIZES, st.booleans())
def test_the_cpu_kernel_moves_q_k_v_o_and_row_statistics_but_no_scores(batch, heads, queries, keys, head, causal):
    sizes = Heads(batch, heads, heads, queries, keys, head, head)
    q, k, v = sizes.tensors("cpu", torch.float32)
    op = only(functional.scaled_dot_product_attention, q, k, v, is_causal=causal)
    assert op.name == f"aten::{CPU}"
    assert op.cls is OpClass.CONTRACTION
    assert op.work.flops_dense == sizes.forward_flops(sizes.pairs)
    assert op.work.matrix == {"fp32": sizes.forward_flops(visible(queries, keys) if causal else sizes.pairs)}
    statistics = 4 * batch * heads * queries
    assert moved(op.work) == (touched_bytes(q, k, v), touched_bytes(q) + statistics)


@few
@given(SIZES, st.integers(1, 3), st.integers(1, 3), LENGTHS, SIZES)
def test_grouped_heads_save_bytes_and_no_flops(batch, groups, repeats, length, head):
    sizes = Heads(batch, groups * repeats, groups, length, length, head, head)
    q, k, v = sizes.tensors("cpu", torch.float32)
    work = work_of(functional.scaled_dot_product_attention, q, k, v, enable_gqa=True)
    assert work.flops == work.flops_dense == sizes.forward_flops(length * length)
    assert work.bytes_read == 4 * batch * length * head * (groups * repeats + 2 * groups)


def test_a_mask_is_read_and_saves_nothing():
    """What it leaves lies in its values, on the device; a mask that is shared by all heads is read once."""
    sizes = Heads(groups=8)
    q, k, v = sizes.tensors("cpu", torch.float32)
    mask = torch.zeros(sizes.queries, sizes.keys)
    work = work_of(functional.scaled_dot_product_attention, q, k, v, attn_mask=mask)
    assert work.flops == sizes.forward_flops(sizes.pairs)
    assert work.bytes_read == touched_bytes(q, k, v, mask)


@pytest.mark.parametrize("causal", [False, True])
def test_the_backward_of_the_cpu_kernel_is_two_and_a_half_forwards(causal):
    q, k, v = (tensor.requires_grad_() for tensor in Heads(groups=8, keys=12).tensors("cpu", torch.float32))
    ops = launched(lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=causal).sum().backward())
    (forward,), (backward,) = named(ops, CPU), named(ops, f"{CPU}_backward")
    assert backward.work.flops == 2.5 * forward.work.flops
    assert backward.work.flops_dense == 2.5 * forward.work.flops_dense
    statistics = 4 * 2 * 8 * 12
    grad = 4  # the gradient of a sum is one number, expanded
    assert moved(backward.work) == (
        touched_bytes(q, k, v) + touched_bytes(q) + statistics + grad,
        touched_bytes(q, k, v),
    )


SCALED = {
    "flash": partial(aten._scaled_dot_product_flash_attention, dropout_p=0.0),
    "efficient": partial(aten._scaled_dot_product_efficient_attention, attn_bias=None, compute_log_sumexp=True),
    "cudnn": partial(aten._scaled_dot_product_cudnn_attention, attn_bias=None, compute_log_sumexp=True),
    "overrideable": aten._scaled_dot_product_fused_attention_overrideable,
}
"""The GPU's kernels on meta tensors: torch itself says what they return."""

SIZES_HELD = [
    pytest.param(Heads(groups=8, keys=12), id="square"),
    pytest.param(Heads(groups=8), id="cross"),
    pytest.param(Heads(), id="grouped heads"),
    pytest.param(Heads(queries=1, keys=33), id="one query"),
]


@pytest.mark.parametrize("sizes", SIZES_HELD)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", SCALED)
def test_every_backend_needs_the_same(backend, causal, sizes):
    q, k, v = sizes.tensors()
    outputs = SCALED[backend](q, k, v, is_causal=causal)
    work = work_of(SCALED[backend], q, k, v, is_causal=causal)
    pairs = visible(sizes.queries, sizes.keys, from_the_end=backend == "flash") if causal else sizes.pairs
    assert work.matrix == {"bf16": sizes.forward_flops(pairs)}
    assert work.flops_dense == sizes.forward_flops(sizes.pairs)
    assert moved(work) == (bytes_of(q, k, v), bytes_of(*outputs))


@pytest.mark.parametrize("sizes", SIZES_HELD)
@pytest.mark.parametrize("backend", ["flash", "efficient", "cudnn"])
def test_dense_flops_are_torchs_where_torch_has_a_formula(backend, sizes):
    if sizes.groups < sizes.heads and torch.__version__ < (2, 12):
        pytest.skip("torch's counter raises on grouped heads before 2.12")
    q, k, v = sizes.tensors()
    with FlopCounterMode(display=False) as peer:
        SCALED[backend](q, k, v)
    assert work_of(SCALED[backend], q, k, v).flops_dense == peer.get_total_flops()


def backward_calls(sizes: Heads, *, causal: bool) -> dict:
    """A backward of each backend with the gradients it returns; arguments as the schemas name them."""
    q, k, v = sizes.tensors("cpu")
    out = torch.ones(sizes.batch, sizes.heads, sizes.queries, sizes.value_head, dtype=torch.bfloat16)
    saved = {
        "grad_out": torch.ones_like(out),
        "query": q,
        "key": k,
        "value": v,
        "out": out,
        "logsumexp": torch.ones(sizes.batch, sizes.heads, sizes.queries),
        "is_causal": causal,
        "dropout_p": 0.0,
    }
    ops = {
        "flash": aten._scaled_dot_product_flash_attention_backward,
        "efficient": aten._scaled_dot_product_efficient_attention_backward,
        "cudnn": aten._scaled_dot_product_cudnn_attention_backward,
        "overrideable": aten._scaled_dot_product_fused_attention_overrideable_backward,
        "cpu": aten._scaled_dot_product_flash_attention_for_cpu_backward,
    }
    gradients = [torch.empty_like(tensor) for tensor in (q, k, v)]
    return {name: (by_schema(op.default, saved, gradients), gradients, saved) for name, op in ops.items()}


def by_schema(op, given: dict, outputs: list):
    """Arguments that we have by name; those that we do not have, seeds and lengths, are not there."""
    named_so = {argument.name: given.get(argument.name.removesuffix("_")) for argument in op._schema.arguments}
    return call(op, outputs=outputs, **named_so)


@pytest.mark.parametrize("sizes", SIZES_HELD)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", [*SCALED, "cpu"])
def test_every_backward_is_two_and_a_half_forwards_and_reads_what_was_saved(backend, causal, sizes):
    made, gradients, saved = backward_calls(sizes, causal=causal)[backend]
    work = formula_of(made)
    pairs = visible(sizes.queries, sizes.keys, from_the_end=backend == "flash") if causal else sizes.pairs
    assert work.matrix == {"bf16": sizes.backward_flops(pairs)} == {"bf16": 2.5 * sizes.forward_flops(pairs)}
    assert work.flops_dense == 2.5 * sizes.forward_flops(sizes.pairs)
    assert moved(work) == (bytes_of(*saved.values()), bytes_of(*gradients))


def test_values_narrower_than_keys_cost_less_in_the_second_product():
    sizes = Heads(head=16, value_head=4)
    q, k, v = sizes.tensors()
    out = torch.empty(2, 8, 12, 4, dtype=torch.bfloat16, device="meta")
    work = formula_of(call(aten._scaled_dot_product_fused_attention_overrideable.default, q, k, v, outputs=[out]))
    assert work.flops == 2 * 2 * 8 * sizes.pairs * (16 + 4)
    work = formula_of(backward_calls(sizes, causal=False)["cudnn"][0])
    assert work.flops == 2 * 2 * 8 * sizes.pairs * (3 * 16 + 2 * 4)


def flash_below(q, k, v, *, causal=False, ends=None, longest=(None, None)):
    flags = {"dropout_p": 0.0, "is_causal": causal, "return_debug_mask": False}
    longest_q, longest_k = longest[0] or q.shape[1], longest[1] or k.shape[1]
    return aten._flash_attention_forward(q, k, v, ends, ends, longest_q, longest_k, **flags)


def efficient_below(q, k, v, *, causal=False, ends=None, longest=(None, None), causal_type=1):
    flags = {"dropout_p": 0.0, "custom_mask_type": causal_type if causal else 0, "compute_log_sumexp": True}
    return aten._efficient_attention_forward(q, k, v, None, ends, ends, *longest, **flags)


TOKENS_FIRST = {
    "flash": flash_below,
    "efficient, from the start": efficient_below,
    "efficient, from the end": partial(efficient_below, causal_type=2),
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("backend", TOKENS_FIRST)
def test_the_kernels_below_take_the_tokens_first_and_need_the_same(backend, causal):
    sizes = Heads()
    q, k, v = (tensor.transpose(1, 2) for tensor in sizes.tensors())
    work = work_of(TOKENS_FIRST[backend], q, k, v, causal=causal)
    pairs = visible(12, 20, from_the_end="start" not in backend) if causal else 12 * 20
    assert work.matrix == {"bf16": sizes.forward_flops(pairs)}
    assert work.flops_dense == sizes.forward_flops(12 * 20)
    assert moved(work) == (bytes_of(q, k, v), bytes_of(*TOKENS_FIRST[backend](q, k, v, causal=causal)))


def test_cudnns_kernel_below_takes_a_batch_with_the_heads_first():
    sizes = Heads(groups=8)
    q, k, v = sizes.tensors()
    dense = {"query": q, "key": k, "value": v, "max_q": sizes.queries, "max_k": sizes.keys}
    work = formula_of(by_schema(aten._cudnn_attention_forward.default, dense, [torch.empty_like(q)]))
    assert work.flops == sizes.forward_flops(sizes.pairs)


PACKED = {
    "flash": flash_below,
    "efficient": lambda q, k, v, **packing: efficient_below(q[None], k[None], v[None], **packing),
}


@pytest.mark.parametrize("backend", PACKED)
def test_packed_sequences_each_count_with_the_longest_as_torch_counts_them(backend):
    """Three sequences of up to 50 queries and 60 keys in 100 and 120 tokens: their lengths lie on the device."""
    q, k, v = (torch.empty(tokens, 8, 16, device="meta") for tokens in (100, 120, 120))
    packing = {"ends": torch.empty(4, dtype=torch.int32, device="meta"), "longest": (50, 60)}
    with FlopCounterMode(display=False) as peer:
        PACKED[backend](q, k, v, **packing)
    work = work_of(PACKED[backend], q, k, v, **packing)
    assert work.flops_dense == peer.get_total_flops() == 3 * 8 * 4 * 50 * 60 * 16
    assert moved(work) == (bytes_of(q, k, v, packing["ends"]), bytes_of(*PACKED[backend](q, k, v, **packing)))


def test_packed_sequences_go_backward_at_two_and_a_half_forwards():
    q, k, v = (torch.empty(tokens, 8, 16) for tokens in (100, 120, 120))
    saved = {
        "grad_out": torch.empty_like(q),
        "query": q,
        "key": k,
        "value": v,
        "out": torch.empty_like(q),
        "cum_seq_q": torch.empty(4),
        "max_q": 50,
        "max_k": 60,
    }
    work = formula_of(by_schema(aten._flash_attention_backward.default, saved, [q.clone(), k.clone(), v.clone()]))
    assert work.flops == 2.5 * 3 * 8 * 4 * 50 * 60 * 16


def test_exponentials_are_evaluated_once_per_needed_score_and_not_reported():
    sizes = Heads(groups=8, keys=12)
    work = work_of(SCALED["efficient"], *sizes.tensors(), is_causal=True)
    assert work.vector_flops == 0
    assert work.vector["fp32"]["exp"] == 2 * 8 * visible(12, 12)


def test_dropout_inside_draws_a_number_per_needed_score():
    sizes = Heads(groups=8)
    q, k, v = sizes.tensors()
    dropping = call(aten._scaled_dot_product_flash_attention.default, q, k, v, 0.1, outputs=[torch.empty_like(q)])
    assert formula_of(dropping).vector["fp32"]["random"] == 2 * 8 * sizes.pairs


def test_the_math_path_is_two_products_that_need_as_much_and_move_the_scores_too():
    """Dropout on a CPU takes this path: the products are alike, the scores are written and read again."""
    sizes = Heads(groups=8)
    q, k, v = sizes.tensors("cpu", torch.float32)
    ops = launched(functional.scaled_dot_product_attention, q, k, v, dropout_p=0.5)
    assert sum(op.work.flops_dense for op in ops) == sizes.forward_flops(sizes.pairs)
    scores = 4 * 2 * 8 * sizes.pairs
    assert sum(op.work.bytes for op in ops) > touched_bytes(q, k, v) + 4 * scores


@pytest.fixture
def fast_path():
    """torch's shortcut through whole modules at inference, as it is set by default."""
    yield torch.backends.mha
    torch.backends.mha.set_fastpath_enabled(True)


class SelfAttention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (SelfAttention, "_native_multi_head_attention"),
        (partial(nn.TransformerEncoderLayer, 16, 2, 24, batch_first=True), "_transformer_encoder_layer_fwd"),
    ],
    ids=["attention", "encoder layer"],
)
def test_a_module_in_one_op_needs_what_its_parts_need(fast_path, build, name):
    module, x = build().eval(), torch.ones(2, 5, 16)
    with torch.no_grad():
        (whole,) = named(launched(module, x), name)
        fast_path.set_fastpath_enabled(False)
        parts = launched(module, x)
    assert whole.cls is OpClass.CONTRACTION
    assert whole.work.flops_dense == sum(op.work.flops_dense for op in parts) > 0
    assert whole.work.bytes < sum(op.work.bytes for op in parts)
