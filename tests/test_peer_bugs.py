"""Bugs of other counters, each as the claim that would catch it in ours."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode

from counting import call, formula_of, launched, moved, work_of
from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.call import Call
from gobrrr.work.counter import Counter, Signature, _count
from gobrrr.work.op import CountedBy, TensorRef
from gobrrr.work.tally import tally

aten = torch.ops.aten
DTYPES = [torch.float64, torch.float32, torch.bfloat16, torch.float16]


def flops_dense(function, *args, **kwargs) -> float:
    return sum(op.work.flops_dense for op in launched(function, *args, **kwargs))


# **** torch/_inductor/analysis/profile_analysis.py ****


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_of_a_product_are_not_doubled(dtype):
    a, b = torch.ones(16, 32, dtype=dtype), torch.ones(32, 8, dtype=dtype)
    assert work_of(torch.matmul, a, b).bytes == (16 * 32 + 32 * 8 + 16 * 8) * dtype.itemsize


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_bytes_of_a_convolution_know_the_size_of_the_type(dtype):
    image, weight = torch.ones(1, 4, 9, 9, dtype=dtype), torch.ones(8, 4, 3, 3, dtype=dtype)
    read, written = 4 * 81 + 8 * 4 * 9, 8 * 49
    assert moved(work_of(functional.conv2d, image, weight)) == (read * dtype.itemsize, written * dtype.itemsize)


def of_type(name: str) -> Call:
    """An addition as a trace would have it, of a type spelled so."""
    one, other, out = (TensorRef(number, 0, (5,), (1,), name) for number in range(3))
    return Call("aten::add", {"self": one, "other": other}, (out,))


@pytest.mark.parametrize("name", ["c10::Float12", "opaque", ""])
def test_a_type_nobody_knows_makes_an_op_unknown_and_not_one_byte_wide(name):
    signature = Signature.of(aten.add.Tensor)
    assert _count(signature, of_type(name)) == (CountedBy.UNKNOWN, None)
    assert _count(signature, of_type("bf16"))[1].bytes == 5 * 3 * ITEM_BYTES["bf16"]


def test_an_unknown_op_leaves_its_mark_in_the_coverage_and_not_zeros_in_the_rows():
    sparse = torch.eye(3).to_sparse()
    with Counter() as counter:
        torch.sparse.mm(sparse, torch.ones(3, 3))
    count = tally(counter.program())
    assert count.coverage["unknown"] > 0
    assert all((row.flops is None) == (row.counted_by is CountedBy.UNKNOWN) for row in count.ops)


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        (aten.bmm.default, [(3, 4, 5), (3, 5, 6)]),
        (aten.baddbmm.default, [(3, 4, 6), (3, 4, 5), (3, 5, 6)]),
    ],
    ids=["bmm", "baddbmm"],
)
def test_baddbmm_is_told_from_bmm(op, shapes):
    """Both names hold `bmm`, and the other tool asks for that first."""
    tensors = [torch.empty(shape) for shape in shapes]
    work = formula_of(call(op, *tensors, outputs=[torch.empty(3, 4, 6)]))
    assert work.flops_dense == 2 * 3 * 4 * 5 * 6
    assert work.bytes_read == 4 * sum(tensor.numel() for tensor in tensors)


# **** fvcore#69, ptflops, thop: multiply-adds called FLOPs ****


@pytest.mark.parametrize(
    ("function", "args", "multiply_adds"),
    [
        pytest.param(torch.matmul, (torch.ones(2, 3), torch.ones(3, 4)), 24, id="matmul"),
        pytest.param(torch.mv, (torch.ones(2, 3), torch.ones(3)), 6, id="mv"),
        pytest.param(functional.conv1d, (torch.ones(1, 1, 5), torch.ones(1, 1, 2)), 8, id="conv"),
        pytest.param(
            functional.scaled_dot_product_attention, (torch.ones(1, 1, 3, 2),) * 3, 2 * 3 * 3 * 2, id="attention"
        ),
    ],
)
def test_one_multiply_add_is_two_flops_everywhere(function, args, multiply_adds):
    assert flops_dense(function, *args) == 2 * multiply_adds


def test_one_multiply_add_is_two_flops_in_a_recurrent_layer():
    assert flops_dense(nn.LSTM(3, 2), torch.ones(5, 1, 3)) == 2 * 5 * (4 * 2 * (3 + 2))


# **** attention: pytorch#195460 counts 0 on a CPU, #134804 twice, and before 2.12 raises on grouped heads ****

Q = torch.ones(2, 8, 12, 16)
ONCE = 4 * 2 * 8 * 12 * 12 * 16


def test_attention_on_a_cpu_is_not_zero():
    with FlopCounterMode(display=False) as peer:
        functional.scaled_dot_product_attention(Q, Q, Q)
    assert flops_dense(functional.scaled_dot_product_attention, Q, Q, Q) == ONCE
    assert peer.get_total_flops() in (0, ONCE)


@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_attention_is_counted_once_in_every_mode(mode):
    """A composite op that is counted whole and again in parts would be twice."""
    with mode():
        assert flops_dense(functional.scaled_dot_product_attention, Q, Q, Q) == ONCE
        assert flops_dense(nn.functional.linear, torch.ones(2, 3), torch.ones(4, 3)) == 2 * 2 * 3 * 4


def test_a_module_of_attention_is_counted_once_in_its_fast_path_too():
    """`nn.MultiheadAttention` has another way through at inference: one op around products that it hides."""
    layer, x = nn.MultiheadAttention(16, 2, batch_first=True).eval(), torch.ones(2, 5, 16)
    projections, scores = 2 * 10 * 4 * 16 * 16, 4 * 2 * 5 * 5 * 16

    def attend() -> None:
        layer(x, x, x, need_weights=False)

    assert flops_dense(attend) == projections + scores
    with torch.inference_mode():
        assert flops_dense(attend) == projections + scores


@pytest.mark.parametrize("groups", [1, 2, 4, 8])
def test_grouped_heads_do_not_raise_and_need_as_many_flops(groups):
    k = torch.ones(2, groups, 12, 16)
    assert flops_dense(functional.scaled_dot_product_attention, Q, k, k, enable_gqa=True) == ONCE
    on_a_gpu = call(aten._scaled_dot_product_flash_attention.default, Q, k, k, outputs=[Q.clone()])
    assert formula_of(on_a_gpu).flops_dense == ONCE
