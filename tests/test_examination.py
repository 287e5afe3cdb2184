"""Tiny real workloads on the CPU, examined with made-up ceilings so that nothing is probed."""

import copy
import random
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import zoo
from counting import programmed
from gobrrr import Workload, examination, schema
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import ProgramFailed
from gobrrr.exam import Exam
from gobrrr.examination import examine, needed_probes
from gobrrr.machine.probes import PROBES
from gobrrr.timing.kernel import KernelKind
from gobrrr.timing.steady import StepEffort
from test_floors import CPU


@pytest.fixture(autouse=True)
def probed(monkeypatch) -> list[tuple[str, list[str]]]:
    """Which probes were asked for; none of them runs, and timing takes the fewest steps it can."""
    asked: list[tuple[str, list[str]]] = []

    def measured(device, *, only):
        asked.append((device, list(only)))
        return CPU

    few = StepEffort(warmup_steps=2, warmup_s=1, window_s=0, window_steps=1, windows=3, budget_s=0)
    monkeypatch.setattr(examination, "measured", measured)
    monkeypatch.setattr(examination, "CPU_STEP_EFFORT", few)
    return asked


def trained() -> Workload:
    """With buffers, random numbers and an optimizer's state."""
    model = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 1))
    return Workload(
        model, torch.randn(4, 6), loss=lambda out: out.square().mean(), optimizer=torch.optim.AdamW(model.parameters())
    )


def inferred() -> Workload:
    return Workload(nn.Sequential(nn.Linear(6, 8), nn.ReLU()), torch.randn(4, 6))


def state(workload: Workload) -> dict:
    return copy.deepcopy(
        {
            "model": dict(workload.model.state_dict()),
            "gradients": [parameter.grad for parameter in workload.model.parameters()],
            "optimizer": workload.optimizer.state_dict() if workload.optimizer else None,
            "inputs": workload.inputs,
            "torch": torch.get_rng_state(),
            "python": random.getstate(),
            "mode": workload.model.training,
        }
    )


def assert_same(before, after) -> None:
    """Bit for bit, whatever is nested in what."""
    if isinstance(before, torch.Tensor):
        assert torch.equal(before, after)
    elif isinstance(before, dict):
        assert before.keys() == after.keys()
        for key in before:
            assert_same(before[key], after[key])
    elif isinstance(before, list | tuple):
        assert len(before) == len(after)
        for one, other in zip(before, after, strict=True):
            assert_same(one, other)
    else:
        assert before == after


# What it leaves behind


@pytest.mark.parametrize("steps_before", [0, 1], ids=["no step yet", "after a step"])
def test_afterwards_everything_is_as_it_was(steps_before):
    workload = trained()
    for _ in range(steps_before):
        workload.step()
    before = state(workload)
    examine(lambda: workload, "made.py:up")
    assert_same(before, state(workload))


@pytest.mark.parametrize(
    ("stage", "call"),
    [(2, 1), (2, 2), (4, 1), (4, 4), (5, 1), (5, 2), (5, 3)],
    ids=["first", "counted", "warming up", "timed", "recorded", "recorded again", "recorded last"],
)
def test_a_step_that_raises_is_the_programs_failure_and_everything_is_restored(stage, call):
    workload, now = trained(), SimpleNamespace(stage=0, call=0)

    def loss(output):
        now.call += 1
        if (now.stage, now.call) == (stage, call):
            raise ZeroDivisionError("as it happens")
        return output.sum()

    def progress(number, *_):
        now.stage, now.call = number, 0

    failing = Workload(workload.model, workload.inputs, loss=loss, optimizer=workload.optimizer)
    before = state(failing)
    with pytest.raises(ProgramFailed, match=r"ZeroDivisionError at test_examination\.py:\d+: as it happens$"):
        examine(lambda: failing, "made.py:up", progress)
    assert_same(before, state(failing))
    assert examine(inferred, "made.py:up").kernels


def test_of_a_step_that_fails_later_it_is_said_that_it_ran():
    timing, stages, x = 4, [], torch.randn(4)

    def step():
        return x.exp() if timing not in stages else 1 / 0

    with pytest.raises(ProgramFailed, match="the step ran at first and then raised ZeroDivisionError"):
        examine(lambda: step, "made.py:up", lambda number, *_: stages.append(number))


def test_what_cannot_be_put_back_is_said():
    batches = (torch.randn(4) for _ in range(1000))
    made = examine(lambda: lambda: next(batches).exp(), "made.py:up")
    assert "what was drawn from a generator cannot be put back" in made.quality.warnings


def test_a_factory_that_raises_is_the_programs_failure():
    with pytest.raises(ProgramFailed, match="the factory raised ZeroDivisionError"):
        examine(lambda: 1 / 0, "made.py:up")


def test_what_a_step_prints_never_reaches_stdout(capsys):
    x = torch.randn(4)
    examine(lambda: lambda: print("loss", x.exp().sum()), "made.py:up")  # noqa: T201 (that is the point)
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "loss" in printed.err


# What it finds


def bare():
    x = torch.randn(64)
    return lambda: x.cos().sin().exp()


@pytest.mark.parametrize("factory", [trained, inferred, bare])
def test_every_launching_op_is_a_kernel_that_is_linked_to_it(factory):
    made = examine(factory, "made.py:up")
    launching = [index for index, op in enumerate(made.program.ops) if op.launches]
    assert [kernel.fused_from for kernel in made.kernels] == [(index,) for index in launching]
    for kernel, index in zip(made.kernels, launching, strict=True):
        op = made.program.ops[index]
        assert (kernel.name, made.ran[kernel.op]) == (op.name, op)
        assert kernel.kind is KernelKind.COMPUTE
        assert kernel.seconds >= 0
    assert made.quality.linked_share in (1.0, None)


def test_on_a_cpu_host_and_device_are_one_and_what_only_a_gpu_has_is_unknown():
    made = examine(trained, "made.py:up")
    assert (made.target, made.device, made.serial) == ("made.py:up", "cpu", True)
    assert (made.host_s, made.syncs, made.gpu_util_percent) == (None, None, None)
    assert (made.ceilings, made.ceilings_from, made.step_s_method) == (CPU, "measured", "windows")
    assert made.steps == len(made.window_step_s) >= 3
    assert made.step_s > 0
    assert made.step_profiled_s > 0
    assert made.peak_memory_bytes == made.program.memory.peak_bytes > 0


def test_on_a_cpu_idle_time_is_python_and_dispatch():
    made = examine(trained, "made.py:up")
    assert set(made.idle) == {"python", "dispatch"}
    assert sum(made.idle.values()) == pytest.approx(1)
    found = diagnose(made)
    assert sum(found.idle_causes_s.values()) == pytest.approx(found.idle_s)


def test_a_step_that_loads_its_data_says_so():
    data = DataLoader(TensorDataset(torch.randn(8, 3)), batch_size=2)
    made = examine(lambda: lambda: [batch.sum() for (batch,) in data], "made.py:up")
    assert made.idle["data_loading"] > 0


def test_the_exam_of_a_real_step_survives_the_disk_and_is_diagnosed_the_same(tmp_path):
    made = examine(trained, "made.py:up")
    schema.write(made, tmp_path / "exam.json.gz")
    back = schema.read(Exam, tmp_path / "exam.json.gz")
    assert back == made
    assert diagnose(back) == diagnose(made)
    assert sum(diagnose(made).seconds.values()) == pytest.approx(made.step_s)


def test_the_stages_are_told_in_order():
    told = []
    examine(inferred, "made.py:up", lambda number, of, what: told.append((number, of)))
    assert told == [(number, 5) for number in range(1, 6)]


# Which ceilings it asks for

ALWAYS = {"dram", "cache", "shortest_kernel", "dispatch"}


@pytest.mark.parametrize(
    ("step", "needed"),
    [
        (lambda x: x @ x, {"matmul.fp32"}),
        (lambda x: x.bfloat16() @ x.bfloat16(), {"matmul.bf16"}),
        (lambda x: x + x, {"vector.fp32"}),
        (lambda x: x.exp(), {"vector.fp32", "cost.exp"}),
        (lambda x: x.double() + 1, {"vector.fp64"}),
        (lambda x: x.clone(), set()),
        (lambda x: x.t(), set()),
        (lambda x: x.long() @ x.long(), set()),
    ],
    ids=["product", "half product", "sum", "exp", "double", "copy", "view", "a product that nobody probes"],
)
def test_only_what_is_needed_is_probed(step, needed):
    assert set(needed_probes(programmed(step, torch.ones(4, 4)))) - ALWAYS == needed


def test_the_probes_are_asked_for_once_on_the_device_of_the_program(probed):
    made = examine(inferred, "made.py:up")
    assert probed == [("cpu", needed_probes(made.program))]


def test_no_probe_is_asked_for_that_does_not_exist_and_each_once():
    names = needed_probes(programmed(zoo.unet().step))
    assert set(names) <= set(PROBES)
    assert len(names) == len(set(names))
