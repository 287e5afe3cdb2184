"""What only a GPU shows of counting: the ops that CUDA dispatches, and the allocator as witness of memory."""

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from gobrrr import Workload
from gobrrr.work.counter import Counter
from gobrrr.work.registry import canonical
from gobrrr.work.tally import Tally, tally
from zoo import FAMILIES, llama

pytestmark = pytest.mark.gpu

CORRECTED = {"convolution_backward"}
"""Where torch's own formula is wrong: it counts the weight gradient of a grouped convolution `groups` times."""


def counted(workload) -> Tally:
    workload.step()
    with Counter() as counter:
        workload.step()
    return tally(counter.program())


@pytest.mark.parametrize("family", FAMILIES)
def test_ops_that_cuda_dispatches_have_formulas(family):
    with torch.device("cuda"):
        count = counted(FAMILIES[family]())
    assert count.coverage["formula"] >= 0.99, (count.defaults, count.unknowns)


@pytest.mark.parametrize("family", [name for name in FAMILIES if "Llama" not in name and name != "Mixtral"])
def test_dense_flops_on_cuda_are_torchs_where_torch_is_right(family):
    with torch.device("cuda"):
        workload = FAMILIES[family]()
        workload.step()
        with FlopCounterMode(display=False) as peer:
            workload.step()
        with Counter() as counter:
            workload.step()
    ours: dict[str, float] = {}
    for op in counter.program().ops:
        if op.work is not None:
            ours[canonical(op.name)] = ours.get(canonical(op.name), 0) + op.work.flops_dense
    for packet, flops in peer.get_flop_counts()["Global"].items():
        if packet.__name__ not in CORRECTED:
            assert ours[packet.__name__] == flops, packet


def test_flash_attention_on_cuda_is_one_op_with_grouped_heads():
    with torch.device("cuda"), torch.autocast("cuda", torch.bfloat16):
        count = counted(llama(key_value_heads=2))
    attention = [row for row in count.ops if "_scaled_dot_product" in row.name]
    assert attention
    assert all(row.flops_dense > 0 for row in attention)


def test_peak_memory_is_what_the_allocator_saw():
    """Above what was there before. Without biases, for the sum that is one's gradient takes a workspace of its own."""
    with torch.device("cuda"):
        model = nn.Sequential(nn.Linear(1024, 4096, bias=False), nn.GELU(), nn.Linear(4096, 1024, bias=False))
        inputs = torch.randn(32768, 1024)
    workload = Workload(model, inputs, lambda y: y.square().mean(), torch.optim.AdamW(model.parameters()))
    workload.step()
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    workload.step()
    seen = torch.cuda.max_memory_allocated() - before
    with Counter() as counter:
        workload.step()
    memory = counter.program().memory
    assert 0.99 * seen <= memory.peak_bytes - memory.resident_bytes <= seen
