"""What is assumed of Inductor's generated modules, and that watching them leaves nothing behind."""

import shutil
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from gobrrr.diagnose.fusion import fused_floor
from gobrrr.examination import examine
from gobrrr.timing.recording import recorded
from gobrrr.work import inductor
from gobrrr.work.counter import counted_program, dispatched_program
from gobrrr.work.lineage import is_generated, traced
from gobrrr.work.op import CountedBy, OpClass, Phase
from test_floors import CPU

pytestmark = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")

ROWS, WIDTH = 32, 64


def training(compiler):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH))
    compiled, x = compiler(model), torch.randn(ROWS, WIDTH)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)

    def step() -> None:
        compiled(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return step


@pytest.fixture(scope="module")
def step():
    return training(torch.compile)


def modules() -> list[dict]:
    return [dict(vars(module)) for module in inductor._modules()]


def test_every_call_of_a_generated_kernel_is_told_with_what_it_reads_and_writes(step):
    calls: list[inductor.Generated] = []

    def told(call):
        calls.append(call)
        return nullcontext()

    before = modules()
    with inductor.watched(told):
        step()
    assert modules() == before
    forward = calls[0]
    assert "gelu" in forward.name
    assert "native_layer_norm" in forward.name
    assert (ROWS, WIDTH) in {tuple(tensor.shape) for tensor in forward.read}
    assert (ROWS, WIDTH) in {tuple(tensor.shape) for tensor in forward.written}
    assert all(call.written for call in calls)


def test_the_program_is_what_stands_before_compilation_and_the_dispatched_what_comes_of_it(step):
    program, dispatched = counted_program(step), dispatched_program(step)
    assert not any(is_generated(op) for op in program.ops)
    generated = [op for op in dispatched.ops if is_generated(op)]
    assert {op.phase for op in generated} == {Phase.FORWARD, Phase.BACKWARD}
    assert sum(op.name.startswith(("aten::addmm", "aten::mm")) for op in dispatched.ops) == 5


def test_counting_does_not_compile_anew(step):
    before = len(inductor._modules())
    counted_program(step)
    dispatched_program(step)
    step()
    assert len(inductor._modules()) == before


def test_the_lineage_of_a_real_compilation_is_complete(step):
    program, dispatched = counted_program(step), dispatched_program(step)
    ran = traced(program.ops, dispatched.ops)
    done = {index for own in ran.fused_from for index in own}
    lost = [op.name for index, op in enumerate(program.ops) if op.launches and index not in done]
    assert lost == []
    forward = next(own for op, own in zip(ran.ops, ran.fused_from, strict=True) if is_generated(op))
    assert [program.ops[index].name for index in forward] == ["aten::gelu", "aten::native_layer_norm"]
    assert {program.ops[index].module for index in forward} == {"Sequential.1", "Sequential.2"}


def test_products_are_the_same_work_compiled_or_not(step):
    program, dispatched = counted_program(step), dispatched_program(step)
    matrix = [sum(op.work.matrix_flops for op in ops if op.work) for ops in (program.ops, dispatched.ops)]
    assert matrix[0] == matrix[1] > 0


def test_generated_cpu_kernels_appear_in_a_profile_by_their_names(step):
    with inductor.annotated():
        names = {span.name for span in recorded(step, lambda: None, ops=True).ops}
    assert {op.name for op in dispatched_program(step).ops if is_generated(op)} <= names


def test_a_compiled_step_is_examined_kernel_by_kernel(step):
    made = examine(lambda: step, "made.py:up")
    generated = [kernel for kernel in made.kernels if is_generated(made.ran[kernel.op])]
    assert generated
    assert all(kernel.fused_from for kernel in generated)
    assert made.quality.linked_share == 1.0
    kinds = {made.ran[kernel.op].cls for kernel in generated}
    assert OpClass.NORMALIZATION in kinds
    assert all(made.ran[kernel.op].counted_by is CountedBy.FORMULA for kernel in generated)


def test_eager_and_compiled_agree_on_the_fused_floor(step):
    steps = training(lambda model: model), step
    eager, compiled = (examine(lambda made=made: made, "made.py:up").program for made in steps)
    assert fused_floor(eager, CPU).seconds == pytest.approx(fused_floor(compiled, CPU).seconds, rel=0.05)


def counted(function):
    """Of a compiled function what was dispatched, with its lineage, and the program."""
    compiled = torch.compile(function)
    compiled()
    return counted_program(compiled), dispatched_program(compiled)


def bytes_of(ops) -> float:
    return sum(op.work.bytes for op in ops if op.launches)


def test_of_a_tensor_that_a_kernel_works_on_a_part_of_only_the_part_is_counted():
    x, cache, row = torch.ones(1 << 16), torch.zeros(64, 1024), torch.ones(1024)
    for step in (lambda: x[:1024] * 2 + 1, lambda: cache[7].copy_(row * 2)):
        program, dispatched = counted(step)
        assert bytes_of(traced(program.ops, dispatched.ops).ops) == 2 * 1024 * 4


def test_a_compiled_optimizer_is_counted_without_compiling_anew_and_loses_no_op():
    weight = nn.Parameter(torch.ones(64, 64))
    optimizer = torch.optim.AdamW([weight], lr=torch.tensor(1e-3))

    @torch.compile
    def update():
        optimizer.step()

    def step() -> None:
        weight.grad = torch.ones(64, 64)
        update()

    for _ in range(3):
        step()
    modules = inductor.generated_modules()
    program, dispatched = counted_program(step), dispatched_program(step)
    assert inductor.generated_modules() == modules
    done = {index for own in traced(program.ops, dispatched.ops).fused_from for index in own}
    large = [i for i, op in enumerate(program.ops) if op.launches and any(ref.numel > 1 for ref in op.outputs)]
    assert [program.ops[i].name for i in large if i not in done] == []


def test_no_storage_of_a_compiled_step_dies_before_it_is_born():
    x = torch.ones(256, 256)
    _, dispatched = counted(lambda: (x.sin() @ x).cos() + 1)
    assert dispatched.memory.peak_bytes >= 3 * x.nbytes


def test_a_step_that_raises_while_it_is_watched_leaves_the_modules_as_they_were(step):
    before = modules()

    def raising() -> None:
        step()
        raise RuntimeError

    with pytest.raises(RuntimeError):
        dispatched_program(raising)
    assert modules() == before


def test_a_module_whose_text_is_gone_is_passed_over(tmp_path):
    assert inductor._kernels_of(str(tmp_path / "gone.py")) == ()


def test_a_template_whose_parameters_have_other_names_is_read_by_their_types():
    source = """['const float*', 'const float*', 'float*'], r'''
extern "C" void kernel(const float* X, const float* W, float* Y)
{"""
    assert inductor._cpp_access(source) == ((True, False), (True, False), (False, True))


def test_calls_that_nobody_sees_are_not_the_hosts_time():
    """With a wrapper in C++ no call of a kernel passes through Python."""
    x = torch.ones(1 << 20)
    with torch._inductor.config.patch(cpp_wrapper=True):
        compiled = torch.compile(lambda: x.sin() + 1)
        compiled()
    made = examine(lambda: compiled, "made.py:up")
    assert made.quality.linked_share < 0.5
    assert any("has no op that launched it" in warning for warning in made.quality.warnings)


def test_without_compilation_nothing_is_dispatched_but_the_program():
    x = torch.ones(4)
    assert dispatched_program(x.cos) is None
