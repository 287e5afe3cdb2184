"""Convolutions: the sum over a convolution of ones with ones is the number of its multiply-adds."""

from math import prod
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from counting import call, few, formula_of, laid_out, launched, moved, only, touched_bytes, work_of
from gobrrr.work.op import OpClass

aten = torch.ops.aten
FORWARD = {
    (1, False): functional.conv1d,
    (2, False): functional.conv2d,
    (3, False): functional.conv3d,
    (1, True): functional.conv_transpose1d,
    (2, True): functional.conv_transpose2d,
    (3, True): functional.conv_transpose3d,
}
SMALL = st.integers(1, 2)
GROUPS = st.integers(1, 3)
# A bias alone is left out: oneDNN returns a weight gradient with it, asked or not.
WANTED = st.sampled_from([(True, False, False), (False, True, False), (True, True, False), (False, True, True)])


class Case(NamedTuple):
    image: torch.Tensor
    weight: torch.Tensor
    stride: int
    dilation: int
    groups: int
    transposed: bool

    @property
    def dims(self) -> int:
        return self.image.dim() - 2

    def forward(self, bias: torch.Tensor | None = None, padding: int = 0) -> torch.Tensor:
        options = {"stride": self.stride, "dilation": self.dilation, "groups": self.groups, "padding": padding}
        return FORWARD[self.dims, self.transposed](self.image, self.weight, bias, **options)

    def backward(self, grad: torch.Tensor, wanted: list[bool]) -> object:
        """Gradients of image, weight and bias, as far as wanted."""
        spread = [[size] * self.dims for size in (self.stride, 0, self.dilation)]
        channels = [grad.shape[1]]
        rest = (self.transposed, [0] * self.dims, self.groups, wanted)
        return aten.convolution_backward(grad, self.image, self.weight, channels, *spread, *rest)

    def multiply_adds(self) -> int:
        ones = self._replace(image=torch.ones_like(self.image).double(), weight=torch.ones_like(self.weight).double())
        return int(ones.forward().sum())


@st.composite
def cases(draw, groups=GROUPS) -> Case:
    dims, transposed, number = draw(st.integers(1, 3)), draw(st.booleans()), draw(groups)
    inner, outer = draw(SMALL), draw(SMALL)
    kernel = tuple(draw(SMALL) for _ in range(dims))
    channels = (number * inner, outer) if transposed else (number * outer, inner)
    image = draw(laid_out((draw(SMALL), number * inner, *(draw(st.integers(3, 5)) for _ in range(dims)))))
    return Case(image, torch.ones(*channels, *kernel), draw(SMALL), draw(SMALL), number, transposed)


@few
@given(cases())
def test_a_convolution_needs_two_flops_per_multiply_add_and_touches_each_element_once(case):
    op = only(case.forward)
    assert op.cls is OpClass.CONTRACTION
    assert op.work.matrix == {"fp32": 2 * case.multiply_adds()}
    assert op.work.flops_dense == op.work.flops
    assert moved(op.work) == (touched_bytes(case.image, case.weight), 4 * case.forward().numel())


@few
@given(cases(groups=st.just(1)), st.integers(0, 1))
def test_dense_flops_without_groups_are_torchs_padding_included(case, padding):
    with FlopCounterMode(display=False) as peer:
        case.forward(padding=padding)
    assert only(case.forward, padding=padding).work.flops_dense == peer.get_total_flops()


@few
@given(cases(), WANTED)
def test_a_backward_costs_a_forward_for_each_of_image_and_weight_that_wants_a_gradient(case, wanted):
    grad = torch.ones_like(case.forward())
    wants_image, wants_weight, wants_bias = wanted
    work = work_of(case.backward, grad, list(wanted))
    assert work.flops_dense == work.matrix_flops == 2 * case.multiply_adds() * (wants_image + wants_weight)
    assert work.vector_flops == wants_bias * grad.numel()
    needed = [grad, *[case.weight] * wants_image, *[case.image] * wants_weight]
    made = wants_image * case.image.numel() + wants_weight * case.weight.numel() + wants_bias * grad.shape[1]
    assert moved(work) == (touched_bytes(*needed), 4 * made)


@few
@given(cases(groups=st.just(1)))
def test_dense_flops_of_a_backward_without_groups_are_torchs(case):
    grad = torch.ones_like(case.forward())
    with FlopCounterMode(display=False) as peer:
        case.backward(grad, [True, True, False])
    assert work_of(case.backward, grad, [True, True, False]).flops_dense == peer.get_total_flops()


def test_torch_counts_the_weight_gradient_of_a_grouped_convolution_once_per_group():
    """Why our backward does not ask torch: of 1 + 1 forwards it makes 1 + groups."""
    case = Case(torch.ones(1, 4, 5, 5), torch.ones(4, 1, 3, 3), 1, 1, 4, transposed=False)
    grad = torch.ones_like(case.forward())
    with FlopCounterMode(display=False) as peer:
        case.backward(grad, [True, True, False])
    forward = 2 * case.multiply_adds()
    assert peer.get_total_flops() == (1 + 4) * forward
    assert work_of(case.backward, grad, [True, True, False]).flops_dense == 2 * forward


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_bytes_are_elements_times_the_width_of_the_type(dtype):
    image, weight = torch.ones(2, 3, 8, 8, dtype=dtype), torch.ones(4, 3, 3, 3, dtype=dtype)
    read, written = image.numel() + weight.numel() + 4, 2 * 4 * 6 * 6
    work = work_of(functional.conv2d, image, weight, torch.ones(4, dtype=dtype))
    assert moved(work) == (read * dtype.itemsize, written * dtype.itemsize)


def test_a_bias_is_one_addition_per_output():
    case = Case(torch.ones(2, 3, 8, 8), torch.ones(4, 3, 3, 3), 1, 1, 1, transposed=False)
    assert work_of(case.forward, torch.ones(4)).vector_flops == 2 * 4 * 6 * 6
    assert work_of(case.forward).vector_flops == 0


def test_a_depthwise_convolution_does_little_per_byte():
    """Each of its outputs is a sum over one channel: K·K multiply-adds for at least one element in and one out."""
    work = work_of(functional.conv2d, torch.ones(1, 64, 16, 16), torch.ones(64, 1, 3, 3), padding=1, groups=64)
    assert work.flops == 2 * 64 * 16 * 16 * 9
    assert work.intensity < 2 * 9 / (4 + 4)


def test_a_module_with_its_backward_is_three_convolutions_but_two_for_the_first_layer():
    """The first layer's image wants no gradient, and torch asks for none."""
    layers = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.Conv2d(4, 5, 3))
    ops = launched(lambda: layers(torch.ones(1, 3, 8, 8)).sum().backward())
    flops = {}
    for op in ops:
        flops[op.module] = flops.get(op.module, 0) + op.work.flops_dense
    assert flops["Sequential.0"] == 2 * (2 * 4 * 6 * 6 * 3 * 9)
    assert flops["Sequential.1"] == 3 * (2 * 5 * 4 * 4 * 4 * 9)


@pytest.mark.parametrize("name", ["cudnn_convolution", "miopen_convolution", "mkldnn_convolution"])
def test_the_libraries_own_ops_cost_what_the_plain_one_does(name):
    image, weight, out = torch.empty(2, 6, 8, 8), torch.empty(4, 3, 3, 3), torch.empty(2, 4, 6, 6)
    op = getattr(aten, name).default
    options = {"padding": [0, 0], "stride": [1, 1], "dilation": [1, 1], "groups": 2}
    switches = {a.name: False for a in op._schema.arguments if a.name in ("benchmark", "deterministic", "allow_tf32")}
    optional = {a.name: None for a in op._schema.arguments if a.name == "bias"}
    work = formula_of(call(op, image, weight, outputs=[out], **options, **switches, **optional))
    assert work.matrix == {"fp32": 2 * out.numel() * 3 * 9}
    assert moved(work) == (4 * (image.numel() + weight.numel()), 4 * out.numel())


def test_a_convolution_multiplies_as_tf32_where_the_flags_allow_it():
    image, weight, out = torch.empty(1, 1, 4, 4), torch.empty(1, 1, 3, 3), torch.empty(1, 1, 2, 2)
    plain = [None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1]
    work = formula_of(call(aten.convolution.default, image, weight, *plain, outputs=[out], tf32=True))
    assert work.matrix == {"tf32": 2 * prod(out.shape) * 9}
