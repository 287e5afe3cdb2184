"""A program counted without a device holds what torch would choose on one."""

import sys
from collections import Counter
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent.parent))

from benchmarks import workloads

from gobrrr import schema
from gobrrr.exam import Exam
from gobrrr.work.count import count_elsewhere
from gobrrr.work.cuda_choices import IN_FP32, TO_FP32, cuda_choices
from gobrrr.work.fake import fake_tensors
from gobrrr.work.tracing import as_traced, compile_modes

EXAMS = Path(__file__).parent / "data" / "exams"


def test_a_training_step_counted_on_a_cpu_is_the_one_recorded_on_an_h200():
    """Op for op, but for whose fused attention it is: cuDNN's there, flash here."""
    counted = count_elsewhere(workloads.gpt2, traced=False)
    recorded = schema.read(Exam, EXAMS / "gpt2.json.gz").program

    def names(program):
        return Counter((op.phase, op.name.replace("cudnn", "flash")) for op in program.ops)

    assert names(counted) == names(recorded)


BF16, FP32 = torch.bfloat16, torch.float32
DENSE, BROADCAST = torch.ones(1, 1, 64, 64, dtype=torch.bool), torch.ones(1, 1, 64, 1, dtype=torch.bool)


@pytest.mark.parametrize(
    ("dtype", "head", "mask", "kernel"),
    [
        (BF16, 64, None, "_scaled_dot_product_flash_attention"),
        (FP32, 64, None, "_scaled_dot_product_efficient_attention"),
        (BF16, 512, None, "_scaled_dot_product_efficient_attention"),
        (BF16, 64, DENSE, "_scaled_dot_product_efficient_attention"),
        (BF16, 64, BROADCAST.expand(1, 1, 64, 64), "bmm"),
        (BF16, 63, DENSE, "bmm"),
    ],
)
def test_attention_is_chosen_as_torch_chooses_on_cuda(dtype, head, mask, kernel):
    def step():
        q, k, v = (torch.randn(2, 4, 64, head, dtype=dtype, requires_grad=True) for _ in range(3))
        attended = torch.nn.functional.scaled_dot_product_attention
        return lambda: attended(query=q, key=k, value=v, attn_mask=mask, dropout_p=0.1).sum().backward()

    names = {op.name for op in count_elsewhere(step, traced=False).ops}
    assert f"aten::{kernel}" in names
    assert f"aten::{kernel}_backward" in names or kernel == "bmm"


def test_autocast_computes_norms_in_fp32_as_on_cuda_and_only_meanwhile():
    x, norm = torch.randn(4, 8, dtype=torch.float16), torch.nn.LayerNorm(8)

    def result():
        with torch.autocast("cpu", torch.float16):
            return norm(x).dtype

    with cuda_choices(), fake_tensors():
        assert result() is torch.float32
    assert result() is torch.float16


@pytest.mark.parametrize("name", [*IN_FP32, *TO_FP32])
def test_the_cpus_autocast_has_no_rule_that_ours_would_hide(name):
    assert not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "AutocastCPU")


def test_a_module_sees_a_compiler_and_its_optimizer_does_not():
    seen = []

    class Asks(torch.nn.Linear):
        def forward(self, x):
            seen.append(torch.compiler.is_compiling())
            return super().forward(x)

    model = Asks(4, 4)
    with as_traced():
        model(torch.randn(2, 4))
        seen.append(torch.compiler.is_compiling())
    model(torch.randn(2, 4))
    assert seen == [True, False, False]


def test_calls_of_a_compiler_are_noted_by_their_mode():
    with compile_modes() as modes:
        torch.compile(torch.nn.Linear(4, 4))
        torch.nn.Linear(4, 4).compile(mode="reduce-overhead")
    assert modes == ["default", "reduce-overhead"]
