"""Pointwise ops, random numbers and losses: so much per element, inputs read once, outputs written once."""

import operator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from counting import (
    FLOATS,
    SIZES,
    call,
    few,
    formula_of,
    laid_out,
    launched,
    moved,
    named,
    only,
    touched_bytes,
    work_of,
)
from gobrrr.work.op import OpClass

aten = torch.ops.aten
BINARY = [torch.add, torch.sub, torch.mul, torch.div, torch.maximum, torch.eq, torch.lt]
DTYPES = FLOATS | st.just(torch.int64)


@st.composite
def broadcast_pairs(draw) -> tuple[torch.Tensor, torch.Tensor]:
    """Two tensors of any layout and type whose shapes fit: some dimensions are 1, some leading ones missing."""
    shape = draw(st.lists(SIZES, min_size=1, max_size=3))
    partial = [draw(st.sampled_from([size, 1])) for size in shape][draw(st.integers(0, len(shape) - 1)) :]
    return draw(laid_out(tuple(shape), draw(DTYPES))), draw(laid_out(tuple(partial), draw(DTYPES)))


@few
@given(st.sampled_from(BINARY), broadcast_pairs())
def test_an_op_of_two_tensors_is_one_flop_per_output_and_reads_distinct_elements(function, pair):
    out = function(*pair)
    op = only(function, *pair)
    assert op.cls is OpClass.ELEMENTWISE
    assert (op.work.flops, op.work.flops_dense) == (out.numel(), 0)
    assert moved(op.work) == (touched_bytes(*pair), out.numel() * out.itemsize)


@few
@given(st.sampled_from(["add_", "mul_", "sub_", "clamp_min_"]), st.data(), SIZES, SIZES)
def test_in_place_reads_and_writes_what_it_changes(name, data, rows, columns):
    changed, other = torch.ones(rows, 2 * columns)[:, ::2], data.draw(laid_out((rows, columns)) | laid_out((columns,)))
    work = work_of(getattr(changed, name), other)
    assert work.flops == rows * columns
    assert moved(work) == (touched_bytes(changed, other), touched_bytes(changed))


X, Y = torch.ones(3, 5), torch.ones(3, 5)
MASK = torch.ones(3, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("function", "args", "read", "written"),
    [
        pytest.param(operator.add, (X, 1), 60, 60, id="a scalar is no bytes"),
        pytest.param(operator.add, (X, X), 60, 60, id="x + x reads x once"),
        pytest.param(operator.add, (X[:, :3], X[:, :3].T), 52, 36, id="x + x.T is at most the stretch of both"),
        pytest.param(operator.add, (X[0], X[1]), 40, 20, id="rows of one buffer"),
        pytest.param(torch.where, (MASK, X, Y), 3 + 60 + 60, 60, id="where reads its mask"),
        pytest.param(torch.masked_fill, (X, MASK, 0.0), 60 + 3, 60, id="masked_fill"),
        pytest.param(torch.gt, (X, 0), 60, 15, id="a comparison writes a byte each"),
        pytest.param(torch.addcmul, (X, X, Y), 120, 60, id="three operands of which two are one"),
        pytest.param(torch.neg, (X.bfloat16(),), 30, 30, id="half the bytes in bf16"),
        pytest.param(torch.mul, (X.bfloat16(), Y), 30 + 60, 60, id="mixed types"),
    ],
)
def test_bytes_of_pointwise_ops_written_out(function, args, read, written):
    assert moved(work_of(function, *args)) == (read, written)


def test_an_out_argument_is_written_and_not_read():
    out = torch.empty(3, 5)
    assert moved(work_of(torch.add, X, Y, out=out)) == (120, 60)


def test_an_out_argument_that_is_an_input_is_read_as_such():
    x = torch.ones(3, 5)
    assert moved(work_of(torch.add, x, Y, out=x)) == (120, 60)


@pytest.mark.parametrize(
    ("function", "evaluations"),
    [
        (torch.cos, {"cos": 1}),
        (torch.exp, {"exp": 1}),
        (torch.rsqrt, {"rsqrt": 1}),
        (torch.reciprocal, {"div": 1}),
        (torch.relu, {"fma": 1}),
        (torch.sigmoid, {"exp": 1, "div": 1, "fma": 1}),
        (functional.silu, {"exp": 1, "div": 1, "fma": 2}),
        (functional.gelu, {"erf": 1, "fma": 3}),
    ],
)
def test_a_named_function_is_one_reported_flop_and_is_priced_by_its_evaluations(function, evaluations):
    work = work_of(function, X)
    assert work.flops == 15
    assert work.vector == {"fp32": {name: 15 * number for name, number in evaluations.items()}}


def test_gelu_by_tanh_needs_no_error_function():
    assert set(work_of(functional.gelu, X, approximate="tanh").vector["fp32"]) == {"tanh", "fma"}


@pytest.mark.parametrize(
    ("exponent", "evaluations"),
    [(2, {"fma": 1}), (3, {"fma": 2}), (0.5, {"sqrt": 1}), (2.5, {"pow": 1}), (-1.5, {"pow": 1})],
)
def test_a_power_is_priced_by_its_exponent(exponent, evaluations):
    work = work_of(torch.pow, X, exponent)
    assert work.flops == 15
    assert work.vector == {"fp32": {name: 15 * number for name, number in evaluations.items()}}


@pytest.mark.parametrize(
    ("dtype", "arithmetic"),
    [(torch.float64, "fp64"), (torch.float32, "fp32"), (torch.bfloat16, "fp32"), (torch.complex128, "fp64")],
)
def test_vector_units_compute_in_fp32_unless_a_double_takes_part(dtype, arithmetic):
    assert list(work_of(torch.mul, X.to(dtype), Y).vector) == [arithmetic]


@pytest.mark.parametrize(("function", "flops"), [(torch.add, 2), (torch.mul, 6), (torch.neg, 2)])
def test_complex_arithmetic_is_counted_in_real_operations(function, flops):
    z = torch.ones(7, dtype=torch.complex64)
    work = work_of(function, *[z, z.clone()][: 1 if function is torch.neg else 2])
    assert work.flops == 7 * flops


@pytest.mark.parametrize(
    ("function", "flops"),
    [
        (lambda x, y: torch.lerp(x, y, 0.1), 3),
        (lambda x, y: torch.addcmul(x, y, y), 3),
        (lambda x, y: torch.addcdiv(x, y, y), 3),
        (lambda x, y: torch.clamp(x, 0, 1), 1),
    ],
    ids=["lerp", "addcmul", "addcdiv", "clamp"],
)
def test_an_expression_is_one_flop_per_operation(function, flops):
    assert work_of(function, X, Y).flops == 15 * flops


@pytest.mark.parametrize("activation", [torch.relu, torch.tanh, torch.sigmoid, functional.gelu, functional.silu])
def test_the_backward_of_an_activation_reads_gradient_and_one_saved_tensor_and_writes_one(activation):
    x = torch.ones(3, 5, requires_grad=True)
    out = activation(x)
    (backward,) = launched(torch.autograd.grad, out, x, torch.ones_like(out))
    assert backward.cls is OpClass.ELEMENTWISE
    assert backward.work.flops >= 15
    assert moved(backward.work) == (120, 60)


@few
@given(st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=4))
def test_a_foreach_op_is_the_sum_of_its_tensors(shapes):
    xs, ys = [torch.ones(shape) for shape in shapes], [torch.ones(shape) for shape in shapes]
    elements = sum(x.numel() for x in xs)
    out_of_place, in_place = work_of(torch._foreach_add, xs, ys), work_of(torch._foreach_add_, xs, ys)
    assert out_of_place.flops == in_place.flops == elements
    assert moved(out_of_place) == moved(in_place) == (8 * elements, 4 * elements)


def test_a_foreach_copy_does_not_read_what_it_overwrites():
    xs, ys = [torch.ones(3), torch.ones(4)], [torch.ones(3), torch.ones(4)]
    assert moved(work_of(torch._foreach_copy_, xs, ys)) == (28, 28)


def test_a_gradient_scaler_tests_and_multiplies_each_gradient_in_place():
    grads = [torch.ones(3), torch.ones(4)]
    found, scale = torch.zeros(1), torch.ones(1)
    work = work_of(torch._amp_foreach_non_finite_check_and_unscale_, grads, found, scale)
    assert work.flops == 2 * 7
    assert moved(work) == (4 * (7 + 2), 4 * (7 + 1))


# **** random numbers ****


def test_dropout_reads_x_and_writes_y_and_a_mask_of_one_byte():
    work = work_of(torch.native_dropout, X, 0.5, train=True)
    assert work.flops == 15
    assert moved(work) == (60, 60 + 15)
    assert work.vector["fp32"]["random"] == 15


def test_the_backward_of_dropout_reads_gradient_and_mask():
    mask = torch.ones(3, 5, dtype=torch.bool)
    assert moved(work_of(aten.native_dropout_backward, X, mask, 2.0)) == (60 + 15, 60)


def test_dropout_on_a_cpu_is_three_passes_that_write_the_mask_in_full_width():
    ops = launched(functional.dropout, X, 0.5)
    assert [op.name for op in ops] == ["aten::bernoulli_.float", "aten::div_.Scalar", "aten::mul.Tensor"]
    assert sum(op.work.flops for op in ops) == 3 * 15
    assert [moved(op.work) for op in ops] == [(0, 60), (60, 60), (120, 60)]


@pytest.mark.parametrize(
    ("function", "args", "read", "written"),
    [
        pytest.param(torch.rand, ((3, 5),), 0, 60, id="rand"),
        pytest.param(torch.randn_like, (X,), 0, 60, id="a model is not read"),
        pytest.param(torch.Tensor.normal_, (torch.ones(3, 5),), 0, 60, id="a target is not read"),
        pytest.param(torch.bernoulli, (X,), 60, 60, id="probabilities are"),
        pytest.param(torch.Tensor.bernoulli_, (torch.ones(3, 5), X), 60, 60, id="probabilities in place"),
        pytest.param(torch.normal, (X, 1.0), 60, 60, id="means are"),
        pytest.param(torch.randint, (9, (3, 5)), 0, 120, id="integers are wide"),
    ],
)
def test_a_random_fill_draws_a_number_per_element_and_reads_only_its_parameters(function, args, read, written):
    work = work_of(function, *args)
    assert work.vector["fp32"]["random"] == 15
    assert moved(work) == (read, written)


# **** losses ****

LOGITS, TARGETS = torch.ones(6, 10), torch.arange(6)


def test_a_loss_by_class_picks_one_score_per_target():
    ops = launched(functional.nll_loss, LOGITS, TARGETS)
    (op,) = named(ops, "nll_loss_forward")
    assert op.work.flops == 6
    assert moved(op.work) == (4 * 6 + 8 * 6, 4 + 4)


def test_its_backward_writes_a_gradient_for_every_class():
    logits = LOGITS.clone().requires_grad_()
    ops = launched(lambda: functional.nll_loss(logits, TARGETS).backward())
    (op,) = named(ops, "nll_loss_backward")
    assert moved(op.work) == (4 + 8 * 6 + 4, 4 * 60)


def test_cross_entropy_reads_and_writes_the_logits_once_each_way():
    """log_softmax forth 8 bytes an element, nll_loss_backward writes 4, log_softmax back reads 8 and writes 4."""
    logits = LOGITS.clone().requires_grad_()
    ops = launched(lambda: functional.cross_entropy(logits, TARGETS).backward())
    of_logits = [op for op in ops if any(ref.numel == 60 for ref in op.outputs)]
    small = 4 + 8 * 6 + 4
    assert sum(op.work.bytes for op in of_logits) == 60 * (8 + 4 + 12) + small


@pytest.mark.parametrize(
    ("loss", "flops"),
    [(functional.mse_loss, 3), (functional.smooth_l1_loss, 3), (functional.huber_loss, 3)],
)
def test_a_loss_by_difference_reads_both_sides_and_writes_one_number(loss, flops):
    work = work_of(loss, X, Y)
    assert work.flops == flops * 15
    assert moved(work) == (120, 4)


def test_a_loss_by_difference_goes_back_over_both_sides():
    x = torch.ones(3, 5, requires_grad=True)
    ops = launched(lambda: functional.mse_loss(x, Y).backward())
    (op,) = named(ops, "mse_loss_backward")
    assert moved(op.work) == (4 + 120, 60)


def test_binary_cross_entropy_takes_two_logarithms_per_element():
    work = work_of(functional.binary_cross_entropy, torch.rand(3, 5), Y)
    assert work.vector["fp32"]["log"] == 30
    assert moved(work) == (120, 4)


def test_a_call_without_known_storages_is_counted_apart_as_from_a_trace():
    """A recorded trace has shapes and no addresses: x + x then reads twice, which is all that can be known."""
    made = call(aten.add.Tensor, X, X, outputs=[Y])
    blind = {
        name: value._replace(storage=None) if hasattr(value, "storage") else value for name, value in made.args.items()
    }
    unknown = type(made)(made.name, blind, tuple(output._replace(storage=None) for output in made.outputs))
    assert moved(formula_of(made)) == (60, 60)
    assert moved(formula_of(unknown)) == (120, 60)
