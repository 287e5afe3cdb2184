"""Matrix products: 2·M·N·K FLOPs, each operand read once and the product written once."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.flop_counter import FlopCounterMode

from counting import FLOATS, SIZES, call, few, formula_of, laid_out, launched, moved, only, touched_bytes, work_of
from gobrrr.work.op import OpClass

aten = torch.ops.aten
MODES = {torch.float64: "fp64", torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
CONTRACTIONS = [
    pytest.param(lambda a, b: a @ b, id="mm"),
    pytest.param(lambda a, b: torch.addmm(a.new_ones(b.shape[1]), a, b), id="addmm"),
    pytest.param(lambda a, b: torch.bmm(a.expand(3, *a.shape), b.expand(3, *b.shape)), id="bmm"),
    pytest.param(lambda a, b: torch.baddbmm(a.new_ones(1), a[None], b[None]), id="baddbmm"),
    pytest.param(lambda a, b: torch.einsum("ik,kj->ji", a, b), id="einsum"),
    pytest.param(
        lambda a, b: torch.nn.functional.linear(a.expand(2, *a.shape), b.T, a.new_ones(b.shape[1])), id="linear"
    ),
    pytest.param(lambda a, b: torch.matmul(a.expand(2, 2, *a.shape), b.expand(2, *b.shape)), id="matmul in 4-D"),
    pytest.param(lambda a, b: torch.tensordot(a, b, 1), id="tensordot"),
]


@few
@given(st.data(), SIZES, SIZES, SIZES, FLOATS)
def test_a_product_needs_two_flops_per_multiply_add_and_touches_each_element_once(data, m, n, k, dtype):
    a, b = data.draw(laid_out((m, k), dtype)), data.draw(laid_out((k, n), dtype))
    op = only(torch.matmul, a, b)
    assert op.cls is OpClass.CONTRACTION
    assert op.work.matrix == {MODES[dtype]: 2 * m * n * k}
    assert op.work.flops_dense == op.work.flops == 2 * m * n * k
    assert moved(op.work) == (touched_bytes(a, b), m * n * dtype.itemsize)


@few
@given(st.data(), SIZES, SIZES, SIZES, SIZES)
def test_a_batch_of_products_is_as_many_products_and_an_expanded_matrix_is_read_once(data, batch, m, n, k):
    a, b = data.draw(laid_out((batch, m, k))), data.draw(laid_out((batch, k, n)))
    work = work_of(torch.bmm, a, b)
    assert work.flops == 2 * batch * m * n * k
    assert moved(work) == (touched_bytes(a, b), 4 * batch * m * n)


@few
@given(st.data(), SIZES, SIZES, SIZES)
def test_a_bias_costs_its_distinct_bytes_and_an_addition_per_output(data, m, n, k):
    a, b = torch.ones(m, k), torch.ones(k, n)
    bias = data.draw(laid_out((m, n)) | laid_out((n,)) | laid_out((m, 1)))
    work = work_of(torch.addmm, bias, a, b)
    assert (work.matrix_flops, work.vector_flops) == (2 * m * n * k, m * n)
    assert moved(work) == (touched_bytes(a, b, bias), 4 * m * n)


@pytest.mark.parametrize(
    "product",
    [
        pytest.param(lambda bias, a, b: torch.addmm(bias, a, b, beta=0), id="addmm"),
        pytest.param(lambda bias, a, b: bias.addmm_(a, b, beta=0), id="in place"),
        pytest.param(lambda bias, a, b: torch.baddbmm(bias, a[None], b[None], beta=0), id="baddbmm"),
        pytest.param(lambda bias, a, b: torch.addbmm(bias, a[None], b[None], beta=0), id="addbmm"),
    ],
)
def test_a_bias_times_zero_is_neither_read_nor_added(product):
    bias, a, b = torch.ones(3, 5), torch.ones(3, 7), torch.ones(7, 5)
    work = work_of(product, bias, a, b)
    assert (work.matrix_flops, work.vector_flops) == (2 * 3 * 5 * 7, 0)
    assert moved(work) == (touched_bytes(a, b), 4 * 15)


def test_a_bias_times_zero_that_is_an_operand_too_is_read_as_that_operand():
    square, b = torch.ones(4, 4), torch.ones(4, 4)
    assert moved(work_of(torch.addmm, square, square, b, beta=0)) == (2 * 64, 64)


def test_a_product_of_a_matrix_with_its_own_transpose_reads_it_once():
    x = torch.ones(6, 3)
    assert moved(work_of(torch.matmul, x, x.T)) == (4 * 18, 4 * 36)


def test_an_out_argument_is_written_and_not_read():
    a, b, out = torch.ones(3, 7), torch.ones(7, 5), torch.ones(3, 5)
    assert moved(work_of(torch.mm, a, b, out=out)) == (touched_bytes(a, b), 4 * 15)


def test_a_product_in_place_reads_what_it_adds_to():
    total, a, b = torch.ones(3, 5), torch.ones(3, 7), torch.ones(7, 5)
    assert moved(work_of(total.addmm_, a, b)) == (touched_bytes(total, a, b), 4 * 15)


@pytest.mark.parametrize(
    ("product", "flops", "added", "read", "written"),
    [
        pytest.param(lambda m, v, w: m @ v, 2 * 6 * 4, 0, 24 + 4, 6, id="mv"),
        pytest.param(lambda m, v, w: torch.addmv(w, m, v), 2 * 6 * 4, 6, 6 + 24 + 4, 6, id="addmv"),
        pytest.param(lambda m, v, w: torch.addmv(w, m, v, beta=0), 2 * 6 * 4, 0, 24 + 4, 6, id="addmv, beta 0"),
        pytest.param(lambda m, v, w: torch.dot(w, w.clone()), 2 * 6, 0, 12, 1, id="dot"),
        pytest.param(lambda m, v, w: torch.dot(w, w), 2 * 6, 0, 6, 1, id="dot with itself"),
        pytest.param(lambda m, v, w: torch.vdot(v, v + 1), 2 * 4, 0, 8, 1, id="vdot"),
    ],
)
def test_a_product_with_a_vector_is_two_flops_per_element_of_the_first(product, flops, added, read, written):
    *_, op = launched(product, torch.ones(6, 4), torch.ones(4), torch.ones(6))
    assert (op.work.matrix_flops, op.work.vector_flops) == (flops, added)
    assert moved(op.work) == (4 * read, 4 * written)


def test_products_summed_over_the_batch_have_a_longer_inner_dimension():
    bias, a, b = torch.ones(5), torch.ones(2, 3, 7), torch.ones(2, 7, 5)
    work = work_of(torch.addbmm, bias, a, b)
    assert (work.matrix_flops, work.vector_flops) == (2 * 3 * 5 * (2 * 7), 15)
    assert moved(work) == (touched_bytes(bias, a, b), 4 * 15)


def test_an_outer_product_sums_over_nothing_and_is_elementwise():
    op = only(torch.addr, torch.ones(3, 5), torch.ones(3), torch.ones(5))
    assert op.cls is OpClass.ELEMENTWISE
    assert (op.work.matrix_flops, op.work.vector_flops) == (0, 2 * 15)
    assert moved(op.work) == (4 * (15 + 3 + 5), 4 * 15)


def test_an_empty_inner_dimension_needs_no_flops_and_still_writes_zeros():
    work = work_of(torch.matmul, torch.ones(3, 0), torch.ones(0, 5))
    assert (work.flops, moved(work)) == (0, (0, 60))


@pytest.mark.parametrize("contraction", CONTRACTIONS)
def test_dense_flops_of_a_contraction_are_torchs(contraction):
    a, b = torch.ones(3, 7), torch.ones(7, 5)
    with FlopCounterMode(display=False) as peer:
        contraction(a, b)
    assert sum(op.work.flops_dense for op in launched(contraction, a, b)) == peer.get_total_flops() > 0


def test_integers_multiply_as_int8_and_add_up_in_32_bits():
    a, b = torch.ones(17, 8, dtype=torch.int8), torch.ones(8, 16, dtype=torch.int8)
    work = work_of(torch._int_mm, a, b)
    assert work.matrix == {"int8": 2 * 17 * 16 * 8}
    assert moved(work) == (17 * 8 + 8 * 16, 4 * 17 * 16)


def test_complex_products_run_in_the_mode_of_their_parts():
    a, b = torch.ones(2, 3, dtype=torch.complex64), torch.ones(3, 4, dtype=torch.complex64)
    work = work_of(torch.matmul, a, b)
    assert list(work.matrix) == ["fp32"]
    assert moved(work) == (8 * (6 + 12), 8 * 8)


@pytest.mark.parametrize(
    ("tf32", "dtype", "mode"),
    [
        (True, torch.float32, "tf32"),
        (False, torch.float32, "fp32"),
        (True, torch.bfloat16, "bf16"),
        (True, torch.float64, "fp64"),
    ],
)
def test_only_fp32_becomes_tf32_where_the_flags_allow_it(tf32, dtype, mode):
    a, b, out = (torch.empty(shape, dtype=dtype) for shape in [(2, 3), (3, 4), (2, 4)])
    assert formula_of(call(aten.mm.default, a, b, outputs=[out], tf32=tf32)).matrix == {mode: 2 * 2 * 3 * 4}


def fp8(*shape: int) -> torch.Tensor:
    return torch.ones(shape).to(torch.float8_e4m3fn)


@pytest.mark.parametrize("bias", [None, torch.ones(16, dtype=torch.bfloat16)], ids=["plain", "with a bias"])
def test_an_fp8_product_reads_a_byte_per_element_and_its_scales(bias):
    a, b, one, other = fp8(32, 64), fp8(16, 64).T, torch.ones(()), torch.ones(())
    work = work_of(torch._scaled_mm, a, b, one, other, bias, out_dtype=torch.bfloat16)
    assert work.matrix == {"fp8": 2 * 32 * 16 * 64}
    assert work.flops_dense == 2 * 32 * 16 * 64
    assert work.vector_flops == (0 if bias is None else 32 * 16)
    assert moved(work) == (32 * 64 + 64 * 16 + 2 * 4 + (0 if bias is None else 2 * 16), 2 * 32 * 16)


def test_an_fp8_product_with_lists_of_scales_costs_the_same():
    a, b, scale, out = fp8(32, 64), fp8(16, 64).T, torch.ones(32), torch.empty(32, 16, dtype=torch.bfloat16)
    by_row = [[scale], [1], [0], [scale[:16]], [1], [0], None, torch.bfloat16]
    work = formula_of(call(aten._scaled_mm_v2.default, a, b, *by_row, outputs=[out]))
    assert work.matrix == {"fp8": 2 * 32 * 16 * 64}
    assert moved(work) == (32 * 64 + 64 * 16 + 4 * 32, 2 * 32 * 16)


def bf16(*shape: int) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.bfloat16)


GROUPS = [16, 0, 40]
"""Rows, columns or inner elements of three groups, as unequal as tokens of experts are."""
GROUPED = {
    "rows: tokens by expert": (bf16(56, 32), bf16(3, 32, 24), lambda size: 2 * size * 32 * 24, 56 * 24),
    "columns: tokens by expert, turned": (bf16(3, 24, 32), bf16(32, 56), lambda size: 2 * 24 * 32 * size, 24 * 56),
    "inner: gradient of the weights": (bf16(24, 56), bf16(56, 32), lambda size: 2 * 24 * size * 32, 3 * 24 * 32),
}


@pytest.mark.parametrize("layout", GROUPED)
def test_a_grouped_product_is_the_products_of_its_groups(layout):
    a, b, flops_of_group, outputs = GROUPED[layout]
    ends = torch.tensor(GROUPS).cumsum(0).int()
    work = work_of(torch._grouped_mm, a, b, ends)
    assert work.matrix == {"bf16": sum(map(flops_of_group, GROUPS))}
    assert work.flops_dense == work.flops
    assert moved(work) == (touched_bytes(a, b, ends), 2 * outputs)


def test_a_grouped_product_of_equal_groups_is_a_batched_one():
    a, b = bf16(3, 16, 32), bf16(3, 32, 24)
    assert work_of(torch._grouped_mm, a, b) == work_of(torch.bmm, a, b)


def test_an_fp8_grouped_product_reads_its_scales_and_multiplies_as_fp8():
    a, b, ends = fp8(48, 32), fp8(3, 24, 32).transpose(1, 2), torch.zeros(3, dtype=torch.int32)
    scales, out = [torch.empty(48), torch.empty(3, 24)], torch.empty(48, 24, dtype=torch.bfloat16)
    work = formula_of(call(aten._scaled_grouped_mm.default, a, b, *scales, ends, outputs=[out]))
    assert work.matrix == {"fp8": 2 * 48 * 32 * 24}
    assert moved(work) == (48 * 32 + 3 * 32 * 24 + 4 * (48 + 72 + 3), 2 * 48 * 24)


def test_weights_of_fewer_bits_are_read_as_such_and_multiplied_in_the_type_of_the_activations():
    x, weight, scales = bf16(4, 32), torch.ones(16, 32, dtype=torch.int8), bf16(16)
    work = work_of(torch._weight_int8pack_mm, x, weight, scales)
    assert work.matrix == {"bf16": 2 * 4 * 16 * 32}
    assert moved(work) == (2 * 4 * 32 + 16 * 32 + 2 * 16, 2 * 4 * 16)
