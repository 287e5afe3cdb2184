"""Sorting, pooling, resampling, Fourier transforms, recurrent layers, fused optimizers and collectives."""

from math import log2

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional
from torch.testing._internal.distributed.fake_pg import FakeStore

from counting import SIZES, call, few, formula_of, launched, moved, named, only, work_of
from gobrrr.work.op import OpClass, Phase

aten = torch.ops.aten


# **** sorting ****


@few
@given(SIZES, st.integers(2, 40))
def test_a_sort_compares_n_log_n_times_and_writes_values_and_positions(rows, columns):
    work = work_of(torch.sort, torch.ones(rows, columns))
    assert work.flops == pytest.approx(rows * columns * log2(columns))
    assert moved(work) == (4 * rows * columns, (4 + 8) * rows * columns)


def test_the_best_few_are_found_in_one_pass():
    work = work_of(torch.topk, torch.ones(3, 100), 5)
    assert work.flops == 300
    assert moved(work) == (4 * 300, (4 + 8) * 15)


# **** pooling ****

IMAGE = torch.ones(2, 3, 8, 8)


@pytest.mark.parametrize(
    ("pool", "outputs", "window", "written"),
    [
        pytest.param(lambda x: functional.max_pool2d(x, 2), 96, 4, 4 + 8, id="maxima with positions"),
        pytest.param(lambda x: functional.max_pool2d(x, 3, stride=1), 216, 9, 4 + 8, id="windows that overlap"),
        pytest.param(lambda x: functional.max_pool2d(x, (1, 4)), 96, 4, 4 + 8, id="a flat window"),
        pytest.param(lambda x: functional.avg_pool2d(x, 2), 96, 4, 4, id="means"),
        pytest.param(lambda x: functional.avg_pool3d(x.view(2, 3, 4, 4, 4), 2), 48, 8, 4, id="means in 3-D"),
    ],
)
def test_a_pool_takes_one_operation_per_element_of_each_window(pool, outputs, window, written):
    work = work_of(pool, IMAGE)
    assert work.flops == outputs * window
    assert moved(work) == (4 * 384, written * outputs)


def test_an_adaptive_pool_uses_every_element_once():
    work = work_of(functional.adaptive_avg_pool2d, IMAGE, 4)
    assert work.flops == 384
    assert moved(work) == (4 * 384, 4 * 96)


@pytest.mark.parametrize(
    ("pool", "read"),
    [
        pytest.param(lambda x: functional.max_pool2d(x, 2), 96 * (4 + 8), id="maxima go back by position"),
        pytest.param(lambda x: functional.avg_pool2d(x, 2), 96 * 4, id="means go back evenly"),
        pytest.param(lambda x: functional.adaptive_avg_pool2d(x, 4), 96 * 4, id="adaptive means"),
    ],
)
def test_a_pool_goes_back_without_reading_its_input(pool, read):
    image = IMAGE.clone().requires_grad_()
    out = pool(image)
    (op,) = launched(torch.autograd.grad, out, image, torch.ones_like(out))
    assert moved(op.work) == (read, 4 * 384)


@pytest.mark.parametrize(("mode", "taps"), [("nearest", 0), ("bilinear", 7), ("bicubic", 35)])
def test_resampling_weighs_the_neighbours_of_every_output(mode, taps):
    op = only(functional.interpolate, IMAGE, scale_factor=2, mode=mode)
    assert op.cls is OpClass.MOVEMENT
    assert op.work.flops == taps * 4 * 384
    assert moved(op.work) == (4 * 384, 4 * 4 * 384)


# **** Fourier transforms ****


@pytest.mark.parametrize(
    ("transform", "flops", "read", "written"),
    [
        pytest.param(lambda: torch.fft.fft(SIGNAL.cfloat()), 5 * 48 * 4, 8 * 48, 8 * 48, id="complex"),
        pytest.param(lambda: torch.fft.rfft(SIGNAL), 2.5 * 48 * 4, 4 * 48, 8 * 27, id="of a real signal"),
        pytest.param(lambda: torch.fft.irfft(HALF, n=16), 2.5 * 48 * 4, 8 * 27, 4 * 48, id="back to a real signal"),
        pytest.param(lambda: torch.fft.fft2(SIGNAL.cdouble()), 5 * 48 * log2(48), 16 * 48, 16 * 48, id="in 2-D"),
    ],
)
def test_a_transform_of_length_n_takes_five_n_log_n_and_half_of_it_for_a_real_side(transform, flops, read, written):
    *_, op = launched(transform)
    assert op.work.flops == pytest.approx(flops)
    assert moved(op.work) == (read, written)


SIGNAL, HALF = torch.ones(3, 16), torch.ones(3, 9, dtype=torch.complex64)


# **** recurrent layers ****

GATES = {nn.LSTM: 4, nn.GRU: 3, nn.RNN: 1}
STEPS, BATCH, INPUT, HIDDEN = 5, 3, 8, 6


def gate_flops(layers: int, directions: int, gates: int) -> int:
    """Each gate multiplies the layer's input and the hidden state once per step and sequence."""
    widths = [INPUT] + [directions * HIDDEN] * (layers - 1)
    return sum(2 * directions * gates * HIDDEN * (width + HIDDEN) * STEPS * BATCH for width in widths)


@pytest.mark.parametrize("directions", [1, 2])
@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("kind", GATES, ids=lambda kind: kind.__name__)
def test_a_recurrent_layer_multiplies_inputs_and_state_by_every_gate(kind, layers, directions):
    layer = kind(INPUT, HIDDEN, layers, bidirectional=directions == 2)
    ops = launched(layer, torch.ones(STEPS, BATCH, INPUT))
    assert sum(op.work.flops_dense for op in ops) == gate_flops(layers, directions, GATES[kind])


def test_a_recurrent_layer_goes_back_at_the_cost_of_two_forwards():
    layer, inputs = nn.LSTM(INPUT, HIDDEN, 2), torch.ones(STEPS, BATCH, INPUT, requires_grad=True)
    ops = launched(lambda: layer(inputs)[0].sum().backward())
    forward, backward = named(ops, "mkldnn_rnn_layer"), named(ops, "mkldnn_rnn_layer_backward")
    assert len(forward) == len(backward) == 2
    assert sum(op.work.flops_dense for op in backward) == 2 * gate_flops(2, 1, 4)


def test_a_recurrent_layer_in_one_kernel_reads_its_weights_once_whatever_the_number_of_steps():
    """The GPU's: weights are views of one buffer, which is an argument as well."""
    buffer = torch.empty(4 * HIDDEN * (INPUT + HIDDEN) + 8 * HIDDEN)
    into, between = 4 * HIDDEN * INPUT, 4 * HIDDEN * (INPUT + HIDDEN)
    weights = [
        buffer[:into].view(4 * HIDDEN, INPUT),
        buffer[into:between].view(4 * HIDDEN, HIDDEN),
        buffer[between : between + 4 * HIDDEN],
        buffer[between + 4 * HIDDEN :],
    ]
    sequence, state = torch.empty(STEPS, BATCH, INPUT), torch.empty(2, 1, BATCH, HIDDEN)
    settings = [2, HIDDEN, 0, 1, False, 0.0, True, False, [], None]
    out = torch.empty(STEPS, BATCH, HIDDEN)
    work = formula_of(
        call(aten._cudnn_rnn.default, sequence, weights, 4, buffer, state[0], state[1], *settings, outputs=[out])
    )
    assert work.matrix == {"fp32": gate_flops(1, 1, 4)}
    assert moved(work) == (4 * (sequence.numel() + buffer.numel() + state.numel()), 4 * out.numel())


# **** fused optimizers ****

PARAMETERS, TENSORS = 30, 2
STATE_BYTES = {
    "AdamW": (torch.optim.AdamW, {}, 16, 12),
    "Adam with the largest moments kept": (torch.optim.Adam, {"amsgrad": True}, 20, 16),
    "SGD": (torch.optim.SGD, {}, 8, 4),
    "SGD with momentum": (torch.optim.SGD, {"momentum": 0.9}, 12, 8),
    "Adagrad": (torch.optim.Adagrad, {}, 12, 8),
}


def stepped(kind: type, dtype: torch.dtype = torch.float32, **options: object) -> list:
    """The ops of a second step, when all state is there."""
    parameters = [nn.Parameter(torch.ones(10, dtype=dtype)), nn.Parameter(torch.ones(4, 5, dtype=dtype))]
    optimizer = kind(parameters, **options)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    return launched(optimizer.step)


@pytest.mark.parametrize("name", STATE_BYTES)
def test_a_fused_optimizer_passes_once_over_parameters_gradients_and_state(name):
    """Step counters, 4 bytes a tensor, are read by those that count steps."""
    kind, options, read, written = STATE_BYTES[name]
    op = stepped(kind, fused=True, **options)[-1]
    counters = 0 if kind is torch.optim.SGD else 4 * TENSORS
    assert (op.cls, op.phase) == (OpClass.OPTIMIZER, Phase.OPTIMIZER)
    assert moved(op.work) == (read * PARAMETERS + counters, written * PARAMETERS)


def test_a_fused_adamw_moves_28_bytes_a_parameter():
    op = stepped(torch.optim.AdamW, fused=True)[-1]
    assert op.work.bytes - 4 * TENSORS == 28 * PARAMETERS


def test_a_fused_adamw_in_bf16_moves_half_of_it():
    op = stepped(torch.optim.AdamW, torch.bfloat16, fused=True)[-1]
    assert op.work.bytes - 4 * TENSORS == 14 * PARAMETERS


def test_an_unfused_adamw_moves_between_40_and_100_bytes_a_parameter():
    """One pass for each of its eight expressions, against one pass over four tensors."""
    ops = stepped(torch.optim.AdamW, foreach=True)
    assert all(op.cls is OpClass.OPTIMIZER for op in ops)
    assert 40 * PARAMETERS < sum(op.work.bytes for op in ops) < 100 * PARAMETERS


def test_a_gradient_scaler_folded_in_writes_the_gradients_back():
    tensors = [[torch.ones(10)] for _ in range(3)]
    steps, scale, found = [torch.ones(())], torch.ones(()), torch.zeros(())
    numbers = {"lr": 0.1, "lr_decay": 0.0, "weight_decay": 0.0, "eps": 1e-8, "maximize": False}
    made = call(aten._fused_adagrad_.default, *tensors, steps, **numbers, grad_scale=scale, found_inf=found, outputs=[])
    assert moved(formula_of(made)) == (4 * (30 + 3), 4 * 30)


@pytest.mark.parametrize(("options", "flops"), [({}, 2), ({"momentum": 0.9}, 4)])
def test_momentum_doubles_the_arithmetic_of_sgd(options, flops):
    assert stepped(torch.optim.SGD, fused=True, **options)[-1].work.flops == flops * PARAMETERS


# **** collectives ****

RANKS, ELEMENTS = 4, 8
PART, WHOLE = 4 * ELEMENTS, 4 * ELEMENTS * RANKS


@pytest.fixture(scope="module")
def four_ranks():
    """torch's own stand-in for a process group: it moves nothing."""
    dist.init_process_group("fake", rank=0, world_size=RANKS, store=FakeStore())
    yield
    dist.destroy_process_group()


def part() -> torch.Tensor:
    return torch.ones(ELEMENTS)


def whole() -> torch.Tensor:
    return torch.ones(RANKS * ELEMENTS)


def parts() -> list[torch.Tensor]:
    return [part() for _ in range(RANKS)]


COLLECTIVES = {
    "all_reduce": (dist.all_reduce, [part()], PART, PART, ELEMENTS),
    "reduce": (dist.reduce, [part(), 0], PART, PART, ELEMENTS),
    "reduce_scatter": (dist.reduce_scatter, [part(), parts()], WHOLE, PART, ELEMENTS),
    "reduce_scatter_tensor": (dist.reduce_scatter_tensor, [part(), whole()], WHOLE, PART, ELEMENTS),
    "all_gather": (dist.all_gather, [parts(), part()], PART, WHOLE, 0),
    "all_gather_into_tensor": (dist.all_gather_into_tensor, [whole(), part()], PART, WHOLE, 0),
    "broadcast": (dist.broadcast, [part(), 0], PART, PART, 0),
    "gather": (dist.gather, [part(), parts(), 0], PART, WHOLE, 0),
    "scatter": (dist.scatter, [part(), parts(), 0], WHOLE, PART, 0),
    "all_to_all": (dist.all_to_all, [parts(), parts()], WHOLE, WHOLE, 0),
    "all_to_all_single": (dist.all_to_all_single, [whole(), whole()], WHOLE, WHOLE, 0),
    "send": (dist.send, [part(), 1], PART, 0, 0),
    "recv": (dist.recv, [part(), 1], 0, PART, 0),
}


# torch 2.13 renames two of them and warns; 2.11 has the old names only.
@pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")
@pytest.mark.usefixtures("four_ranks")
@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_reads_what_it_sends_writes_what_it_receives_and_adds_what_it_reduces(name):
    function, args, read, written, added = COLLECTIVES[name]
    op = only(function, *args)
    assert op.cls is OpClass.COMMUNICATION
    assert moved(op.work) == (read, written)
    assert op.work.flops == added


FUNCTIONAL = {
    "all_reduce": (lambda ops, group: ops.all_reduce(part(), "sum", group), PART, PART, ELEMENTS),
    "all_gather_into_tensor": (lambda ops, group: ops.all_gather_into_tensor(part(), RANKS, group), PART, WHOLE, 0),
    "reduce_scatter_tensor": (
        lambda ops, group: ops.reduce_scatter_tensor(whole(), "sum", RANKS, group),
        WHOLE,
        PART,
        ELEMENTS,
    ),
}


@pytest.mark.usefixtures("four_ranks")
@pytest.mark.parametrize("name", FUNCTIONAL)
def test_a_functional_collective_costs_the_same_and_waiting_for_it_nothing(name):
    function, read, written, added = FUNCTIONAL[name]
    group, ops = dist.group.WORLD.group_name, torch.ops._c10d_functional
    launches = launched(lambda: ops.wait_tensor(function(ops, group)))
    (op,) = [op for op in launches if not op.name.startswith("aten::ones")]
    assert op.cls is OpClass.COMMUNICATION
    assert moved(op.work) == (read, written)
    assert op.work.flops == added


@pytest.mark.usefixtures("four_ranks")
def test_a_barrier_moves_nothing():
    assert launched(dist.barrier) == []
