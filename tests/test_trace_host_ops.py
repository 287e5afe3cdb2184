"""Traces of steps on a CPU: their ops are counted from their shapes, at the level where these tell the work."""

from itertools import pairwise

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function
from torch.utils.flop_counter import FlopCounterMode

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.trace_examination import examine_trace
from gobrrr.work.op import CountedBy, OpClass, Phase


def training():
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.LayerNorm(128))
    optimizer, x = torch.optim.SGD(model.parameters(), lr=0.1), torch.randn(32, 64)

    def step():
        optimizer.zero_grad()
        model(x).t().square().mean().backward()
        optimizer.step()

    step()
    return step


def convolving():
    model, image = torch.nn.Conv2d(3, 8, 3), torch.randn(2, 3, 16, 16)
    return lambda: model(image).relu()


def examined(step, folder, **how):
    with profile(activities=[ProfilerActivity.CPU], **how) as recorded, record_function("ProfilerStep#1"):
        step()
    path = folder / "trace.json"
    recorded.export_chrome_trace(str(path))
    return examine_trace(path)


@pytest.mark.parametrize("make", [training, convolving])
def test_flops_are_those_that_torch_counts(make, tmp_path):
    step = make()
    with FlopCounterMode(display=False) as counter:
        step()
    ops = examined(step, tmp_path, record_shapes=True).dispatched
    assert sum(op.work.flops_dense for op in ops if op.work) == counter.get_total_flops()


def test_each_op_is_counted_once_and_what_moves_nothing_is_overhead(tmp_path):
    made = examined(training(), tmp_path, record_shapes=True)
    assert made.serial
    names = [op.name for op in made.dispatched]
    assert names.count("aten::addmm") == 1
    assert not {"aten::linear", "aten::t", "aten::empty", "aten::as_strided"} & set(names)
    assert {op.phase for op in made.dispatched if op.cls is OpClass.CONTRACTION} == {Phase.FORWARD, Phase.BACKWARD}
    ends = sorted((one.start_s, one.start_s + one.seconds) for one in made.kernels)
    assert all(end <= start + 1e-9 for (_, end), (start, _) in pairwise(ends))
    found = diagnose(made)
    assert found.busy_s + found.idle_s == pytest.approx(made.step_s)


def test_a_whole_step_without_shapes_is_uncounted_but_for_what_moves_nothing(tmp_path):
    ops = examined(training(), tmp_path).dispatched
    assert {op.counted_by for op in ops} == {CountedBy.UNKNOWN}
    assert {"aten::addmm", "aten::gelu", "aten::native_layer_norm"} <= {op.name for op in ops}
    assert not {"aten::linear", "aten::t", "aten::as_strided"} & {op.name for op in ops}


def test_without_shapes_the_outermost_ops_that_do_more_than_to_call_others_stand_uncounted(tmp_path):
    ops = examined(convolving(), tmp_path).dispatched
    assert [op.name for op in ops] == ["aten::convolution", "aten::relu"]
    assert {op.counted_by for op in ops} == {CountedBy.UNKNOWN}
