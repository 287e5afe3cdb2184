"""Reductions, softmax and norms: every element once in, and what little comes out."""

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
REDUCTIONS = {
    "sum": (torch.sum, 1),
    "mean": (torch.mean, 1),
    "amax": (torch.amax, 1),
    "prod": (torch.prod, 1),
    "var": (torch.var, 4),
    "std": (torch.std, 4),
    "logsumexp": (torch.logsumexp, 4),
    "vector_norm": (lambda x, dim: torch.linalg.vector_norm(x, dim=dim), 2),
}


@few
@given(st.sampled_from(sorted(REDUCTIONS)), st.data(), SIZES, st.integers(2, 5), FLOATS)
def test_a_reduction_reads_every_element_once_and_writes_one_per_row(name, data, rows, columns, dtype):
    function, flops = REDUCTIONS[name]
    x = data.draw(laid_out((rows, columns), dtype))
    op = only(function, x, 1)
    assert op.cls is OpClass.NORMALIZATION
    assert op.work.flops == flops * rows * columns
    assert moved(op.work) == (touched_bytes(x), rows * dtype.itemsize)


@pytest.mark.parametrize(
    ("function", "written"),
    [
        pytest.param(lambda x: x.sum(), 4, id="over all"),
        pytest.param(lambda x: x.max(1), 3 * (4 + 8), id="with positions"),
        pytest.param(lambda x: x.argmax(1), 3 * 8, id="positions alone"),
        pytest.param(lambda x: torch.var_mean(x, 1), 2 * 3 * 4, id="two results"),
        pytest.param(lambda x: x.any(), 1, id="a boolean"),
        pytest.param(lambda x: x.cumsum(1), 60, id="running"),
    ],
)
def test_a_reduction_writes_what_it_returns(function, written):
    assert moved(work_of(function, torch.ones(3, 5))) == (60, written)


def test_norms_of_many_gradients_read_each_once():
    grads = [torch.ones(3), torch.ones(4, 2)]
    work = work_of(torch._foreach_norm, grads)
    assert work.flops == 2 * 11
    assert moved(work) == (44, 8)


def test_a_comparison_that_returns_no_tensor_is_a_kernel_all_the_same():
    assert moved(work_of(torch.equal, torch.ones(3, 5), torch.ones(3, 5))) == (120, 0)


def test_handing_a_number_to_the_host_is_no_kernel():
    assert launched(torch.ones(()).item) == []


# **** softmax ****


@few
@given(st.sampled_from([torch.softmax, torch.log_softmax]), st.data(), SIZES, SIZES, st.integers(0, 1), FLOATS)
def test_a_softmax_is_five_flops_an_element_read_once_and_written_once(function, data, rows, columns, dim, dtype):
    x = data.draw(laid_out((rows, columns), dtype))
    op = only(function, x, dim)
    assert op.cls is OpClass.NORMALIZATION
    assert op.work.flops == 5 * rows * columns
    assert sum(functions["exp"] for functions in op.work.vector.values()) == rows * columns
    assert moved(op.work) == (touched_bytes(x), rows * columns * dtype.itemsize)


def test_a_softmax_that_widens_writes_the_wider_type():
    assert moved(work_of(aten._softmax, torch.ones(3, 5), 1, half_to_float=False)) == (60, 60)
    out = torch.empty(3, 5)
    widening = call(aten._softmax.default, torch.empty(3, 5, dtype=torch.float16), 1, half_to_float=True, outputs=[out])
    assert moved(formula_of(widening)) == (30, 60)


@pytest.mark.parametrize(("function", "exponentials"), [(torch.softmax, 0), (torch.log_softmax, 1)])
def test_the_backward_of_a_softmax_reads_gradient_and_result(function, exponentials):
    """From the probabilities no exponential is needed again, from their logarithms one."""
    x = torch.ones(3, 5, requires_grad=True)
    out = function(x, 1)
    (backward,) = launched(torch.autograd.grad, out, x, torch.ones_like(out))
    assert backward.work.flops == 4 * 15
    assert backward.work.vector["fp32"].get("exp", 0) == 15 * exponentials
    assert moved(backward.work) == (120, 60)


# **** norms ****

X, WEIGHT, BIAS = torch.ones(6, 8), torch.ones(8), torch.ones(8)


def test_a_layer_norm_is_seven_flops_an_element_and_keeps_two_numbers_a_row():
    op = only(functional.layer_norm, X, (8,), WEIGHT, BIAS)
    assert op.cls is OpClass.NORMALIZATION
    assert op.work.flops == 7 * 48
    assert moved(op.work) == (4 * (48 + 8 + 8), 4 * (48 + 2 * 6))


def test_a_layer_norm_without_weights_reads_none():
    assert moved(work_of(functional.layer_norm, X, (8,))) == (4 * 48, 4 * (48 + 2 * 6))


def test_the_backward_of_a_layer_norm_reads_gradient_input_and_statistics():
    """The bias is an argument of torch's op, and counted with the weight: 4 bytes a column."""
    x, weight, bias = (tensor.clone().requires_grad_() for tensor in (X, WEIGHT, BIAS))
    out = functional.layer_norm(x, (8,), weight, bias)
    (backward,) = launched(torch.autograd.grad, out, (x, weight, bias), torch.ones_like(out))
    assert backward.work.flops == 14 * 48
    assert moved(backward.work) == (4 * (2 * 48 + 2 * 6 + 2 * 8), 4 * (48 + 2 * 8))


def test_a_norm_goes_back_over_three_tensors_where_it_went_forth_over_two():
    x = torch.ones(64, 512, requires_grad=True)
    layer = torch.nn.LayerNorm(512)
    ops = launched(lambda: layer(x).backward(torch.ones(64, 512)))
    (forward,), (backward,) = named(ops, "native_layer_norm"), named(ops, "native_layer_norm_backward")
    assert backward.work.bytes / forward.work.bytes == pytest.approx(1.5, abs=0.05)


def test_a_group_norm_keeps_two_numbers_a_group():
    image = torch.ones(2, 8, 3, 3)
    work = work_of(functional.group_norm, image, 4, WEIGHT, BIAS)
    assert work.flops == 7 * 144
    assert moved(work) == (4 * (144 + 16), 4 * (144 + 2 * 2 * 4))


def test_a_root_mean_square_norm_is_one_kernel_on_a_gpu_of_four_flops_an_element():
    statistics = torch.empty(6, 1)
    work = formula_of(
        call(aten._fused_rms_norm.default, X, (8,), WEIGHT, 1e-5, outputs=[torch.empty(6, 8), statistics])
    )
    assert work.flops == 4 * 48
    assert moved(work) == (4 * (48 + 8), 4 * (48 + 6))


def test_its_backward_is_nine_flops_an_element():
    gradients = [torch.empty(6, 8), torch.empty(8)]
    args = (torch.empty(6, 8), X, (8,), torch.empty(6, 1), WEIGHT, [True, True])
    work = formula_of(call(aten._fused_rms_norm_backward.default, *args, outputs=gradients))
    assert work.flops == 9 * 48
    assert moved(work) == (4 * (2 * 48 + 6 + 8), 4 * (48 + 8))


def batch_norm(*, training: bool) -> tuple[torch.nn.BatchNorm2d, torch.Tensor]:
    return torch.nn.BatchNorm2d(8, dtype=torch.float32).train(training), torch.ones(2, 8, 3, 3)


@pytest.mark.parametrize(("training", "flops"), [(True, 7), (False, 2)])
def test_a_batch_norm_is_seven_flops_an_element_in_training_and_a_multiply_add_at_inference(training, flops):
    layer, image = batch_norm(training=training)
    (op,) = named(launched(layer, image), "native_batch_norm")
    assert op.cls is OpClass.NORMALIZATION
    assert op.work.flops == flops * 144
    statistics = 2 * 8 * training
    assert moved(op.work) == (4 * (144 + 4 * 8), 4 * (144 + statistics))


def test_the_backward_of_a_batch_norm_reads_gradient_and_image():
    layer, image = batch_norm(training=True)
    out = layer(image.requires_grad_())
    (backward,) = launched(torch.autograd.grad, out, (image, *layer.parameters()), torch.ones_like(out))
    assert backward.work.flops == 14 * 144
    weight_running_and_saved = 5 * 8
    assert moved(backward.work) == (4 * (2 * 144 + weight_running_and_saved), 4 * (144 + 2 * 8))


@pytest.mark.parametrize("name", ["_batch_norm_with_update", "_batch_norm_with_update_functional"])
def test_a_batch_norm_that_updates_trains(name):
    image, out, saved = torch.empty(2, 8, 3, 3), torch.empty(2, 8, 3, 3), torch.empty(8)
    args = (image, WEIGHT, BIAS, torch.empty(8), torch.empty(8), 0.1, 1e-5)
    assert formula_of(call(getattr(aten, name).default, *args, outputs=[out, saved])).flops == 7 * 144


def test_cudnns_workspace_is_not_read_back():
    image, grad, workspace = torch.empty(2, 8, 3, 3), torch.empty(2, 8, 3, 3), torch.empty(1000, dtype=torch.uint8)
    small = [torch.empty(8) for _ in range(5)]
    args = (image, grad, *small, 1e-5, workspace)
    work = formula_of(call(aten.cudnn_batch_norm_backward.default, *args, outputs=[torch.empty(2, 8, 3, 3)]))
    assert work.bytes_read == 4 * (2 * 144 + 5 * 8)
