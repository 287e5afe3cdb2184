"""Workloads that cannot be examined, or not in full: one sentence each, and the user's objects as they were."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from gobrrr import Workload
from gobrrr.errors import CannotDecide, Missing, UsageError
from gobrrr.examination import examine
from gobrrr.work.op import Op
from gobrrr.work.placement import one_device
from test_examination import assert_same, inferred, probed, state, trained
from test_residency import Tape

__all__ = ["probed"]  # an autouse fixture: nothing is measured here, and few steps are taken


def refused(kind: type[Exception], workload: Workload, **options: bool) -> str:
    """What is said of it, in one line, and everything is as it was."""
    before = state(workload)
    with pytest.raises(kind) as caught:
        examine(lambda: workload, "made.py:up", **options)
    assert_same(before, state(workload))
    sentence = str(caught.value)
    assert "\n" not in sentence
    return sentence


# Memory

ALLOCATOR = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to"


@pytest.mark.parametrize("call", [1, 2, 5], ids=["first", "counted", "later"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.\nGPU 0 has a total capacity of"),
        RuntimeError(ALLOCATOR),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        MemoryError(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_memory_that_runs_out_is_missing_and_says_what_to_do(error, call):
    calls = []

    def loss(output):
        calls.append(1)
        if len(calls) == call:
            raise error
        return output.sum()

    sentence = refused(Missing, replace(trained(), loss=loss))
    before = "ran at first and then " if call > 2 else ""
    assert sentence.startswith(f"the step {before}ran out of memory at test_bad_workloads.py:")
    assert "make the batch or the model smaller" in sentence


def test_an_allocation_that_no_machine_can_make_is_missing_memory():
    workload = replace(inferred(), model=_Calling(lambda x: torch.empty(1 << 50)))
    assert "ran out of memory" in refused(Missing, workload)


# Steps that are not alike


class _Calling(nn.Module):
    """A parameter, so that there is something to restore, and a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.weight, self.function = nn.Parameter(torch.ones(6)), function

    def forward(self, x):
        return self.function(x * self.weight)


def test_a_step_that_changes_shape_each_time_cannot_be_decided():
    sizes = iter(range(2, 1000))
    sentence = refused(CannotDecide, replace(inferred(), model=_Calling(lambda x: x.repeat(next(sizes), 1).exp())))
    assert sentence.startswith("the step does not do the same each time (")
    assert "give it inputs of one shape" in sentence


def test_a_step_that_ends_with_an_update_now_and_then_cannot_be_decided_and_the_way_out_is_named():
    model, x, count = nn.Linear(6, 6), torch.randn(4, 6), [0]
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-2)

    def step() -> None:
        model(x).square().mean().backward()
        count[0] += 1
        if count[0] % 2 == 0:
            optimizer.step()

    with pytest.raises(CannotDecide, match="let one step add up all that goes into an update"):
        examine(lambda: step, "made.py:up")
    assert count == [0]


class _Caching(nn.Module):
    """Attends to all that it has ever seen."""

    def __init__(self, before: int) -> None:
        super().__init__()
        self.weight, self.before = nn.Linear(6, 6), before
        self.seen = [torch.ones(before, 6)]

    def forward(self, x):
        self.seen.append(x)
        return torch.cat(self.seen) @ self.weight(x).T

    def forget(self) -> None:
        self.seen = [torch.ones(self.before, 6)]


def test_a_cache_that_fills_cannot_be_decided_and_the_way_out_is_named():
    workload = Workload(_Caching(0), torch.randn(4, 6))
    assert "undo in Workload(reset=...) what it leaves behind, such as a key-value cache" in refused(
        CannotDecide, workload
    )
    assert len(workload.model.seen) == 1


def test_a_cache_that_is_reset_is_no_trouble():
    model = _Caching(0)
    made = examine(lambda: Workload(model, torch.randn(4, 6), reset=model.forget), "made.py:up")
    assert not any("each time" in warning for warning in made.quality.warnings)


def test_a_cache_that_grows_by_little_is_a_warning():
    made = examine(lambda: Workload(_Caching(100_000), torch.randn(4, 6)), "made.py:up")
    assert any("the step does not do the same each time" in warning for warning in made.quality.warnings)
    assert made.kernels


def test_a_change_that_comes_late_is_seen():
    """Within the counted steps all is alike; what is recorded is not."""
    calls = []

    def late(x):
        calls.append(1)
        return x.repeat(10 if len(calls) > 3 else 1, 1).exp()

    refused(CannotDecide, replace(inferred(), model=_Calling(late)))


# Devices


def test_a_step_on_two_devices_is_refused_with_their_names():
    here, there = (torch.ones(64, 64, device=device) for device in ("cpu", "meta"))
    workload = replace(inferred(), model=_Calling(lambda x: (here @ here, there @ there)))
    assert refused(UsageError, workload) == "the step works on meta and on cpu: keep it on one device to examine it"


def on(device: str, elements: int = 1000, module: str = "Model.layer") -> Op:
    tape = Tape()
    tape.pointwise(tape.tensor(elements))
    return replace(tape.ops[0], device=device, module=module)


@pytest.mark.parametrize(
    "host",
    [on("cpu", elements=10), on("cpu", elements=10_000, module="")],
    ids=["a little in a module", "a batch that is made ready"],
)
def test_work_of_the_hosts_own_is_nothing_to_refuse(host):
    assert one_device((on("cuda:0"), host)) == "cuda:0"


@pytest.mark.parametrize("other", ["cpu", "cuda:1"])
def test_a_model_on_a_gpu_and_elsewhere_is_refused(other):
    with pytest.raises(UsageError, match=f"the step works on cuda:0 and on {other}: keep it on one device"):
        one_device((on("cuda:0"), on("cuda:0"), on(other)))


def test_a_model_on_the_meta_device_is_refused():
    with torch.device("meta"):
        workload = Workload(nn.Linear(6, 6), torch.ones(4, 6))
    with pytest.raises(UsageError, match="the step works on the meta device, where nothing runs"):
        examine(lambda: workload, "made.py:up")


@pytest.mark.gpu
def test_a_model_split_between_host_and_gpu_is_refused():
    model = nn.Sequential(nn.Linear(256, 256), nn.Identity(), nn.Linear(256, 256).cuda())
    model[1].forward = lambda x: x.cuda()
    workload = Workload(model, torch.ones(256, 256))
    assert "the step works on cuda:0 and on cpu" in refused(UsageError, workload)


@pytest.mark.gpu
def test_memory_of_a_gpu_that_runs_out_is_missing():
    workload = Workload(_Calling(lambda x: torch.empty(1 << 45, device="cuda")).cuda(), torch.ones(4, 6).cuda())
    assert "ran out of memory" in refused(Missing, workload)


# The batch test


def test_twice_the_batch_is_timed_beside_it_and_everything_is_as_it_was():
    workload = trained()
    before = state(workload)
    made = examine(lambda: workload, "made.py:up", batch_test=True)
    assert_same(before, state(workload))
    assert len(made.batch_test.pairs_s) >= 3
    assert made.batch_test.problem is None


def test_a_bare_step_has_no_batch():
    with pytest.raises(UsageError, match="a bare step has no batch that could be doubled"):
        examine(lambda: lambda: torch.ones(3), "made.py:up", batch_test=True)


def test_labels_outside_the_inputs_are_named_and_the_rest_of_the_exam_stays():
    workload, labels = trained(), torch.randn(4, 1)
    closed = replace(workload, loss=lambda out: nn.functional.binary_cross_entropy_with_logits(out, labels))
    before = state(closed)
    made = examine(lambda: closed, "made.py:up", batch_test=True)
    assert_same(before, state(closed))
    assert made.kernels
    assert made.batch_test.pairs_s == ()
    assert made.batch_test.problem.startswith(
        "the step with twice the batch raised ValueError at test_bad_workloads.py"
    )
    assert made.batch_test.problem.endswith("labels and whatever else has the batch belong into Workload(inputs=...)")
