"""What only a GPU shows of an examination: waits with their lines, causes of idle time, gaps, and how it was used."""

import inspect
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from gobrrr import examination
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam
from gobrrr.examination import examine
from gobrrr.timing.host import waits
from gobrrr.timing.idle import gap_before_s, latency_share
from gobrrr.timing.kernel import Sync
from gobrrr.timing.recording import recorded
from gobrrr.timing.recordings import RECORDED_STEPS
from gobrrr.timing.syncs import located, sync_lines
from gobrrr.timing.timeline import asked_for_within
from test_floors import CPU

pytestmark = pytest.mark.gpu

Step = Callable[[], object]


@pytest.fixture(autouse=True)
def ceilings(monkeypatch) -> None:
    """Made up: how fast it is, is not the question."""
    monkeypatch.setattr(examination, "measured", lambda _device, *, only: replace(CPU, device="cuda"))


def syncs(step: Step) -> tuple[Sync, ...]:
    step()
    timed = recorded(step, torch.cuda.synchronize, ops=False, steps=RECORDED_STEPS, lead_in=3)
    return located(waits(timed, RECORDED_STEPS), sync_lines(step))


def lines(step: Step) -> list[int]:
    """Of the waits, counted from the `def` of the step."""
    found = syncs(step)
    assert all(sync.source is not None and sync.source.startswith("tests/test_gpu_examination.py:") for sync in found)
    first = inspect.getsourcelines(step)[1]
    return [int(sync.source.rpartition(":")[2]) - first for sync in found]


def layers() -> tuple[nn.Module, torch.Tensor]:
    with torch.device("cuda"):
        return nn.Sequential(*(nn.Linear(64, 64) for _ in range(4))), torch.randn(32, 64)


# Waits and their lines


def test_a_number_that_is_read_has_its_line():
    model, x = layers()

    def step() -> None:
        loss = model(x).sum()
        loss.item()

    assert lines(step) == [2]


def test_each_of_several_reads_has_its_own():
    model, x = layers()

    def step() -> None:
        y = model(x)
        y.sum().item()
        y.mean().item()

    assert lines(step) == [2, 3]


@pytest.mark.parametrize("pinned", [False, True])
def test_a_copy_to_the_host_and_one_from_it_have_theirs(pinned):
    model, x = layers()
    batch = x.cpu().pin_memory() if pinned else x.cpu()

    def step() -> None:
        y = model(batch.to("cuda"))
        y.cpu()

    assert lines(step) == [1, 2]


def test_a_copy_that_does_not_wait_has_none():
    model, x = layers()
    batch = x.cpu().pin_memory()
    assert syncs(lambda: model(batch.to("cuda", non_blocking=True))) == ()


def test_an_op_whose_result_has_an_unknown_size_has_its_line():
    model, x = layers()

    def step() -> None:
        y = model(x)
        torch.nonzero(y > 0)
        y[y > 0].sum()

    assert set(lines(step)) == {2, 3}


@pytest.mark.parametrize("wait", [torch.cuda.synchronize, torch.accelerator.synchronize])
def test_a_wait_for_the_device_has_its_line_though_torch_does_not_warn(wait):
    model, x = layers()

    def step() -> None:
        model(x)
        wait()

    (found,) = syncs(step)
    assert found.call == "cudaDeviceSynchronize"
    assert lines(step) == [2]


def test_waits_for_events_and_streams_have_theirs():
    model, x = layers()
    event = torch.cuda.Event()

    def step() -> None:
        model(x)
        event.record()
        event.synchronize()
        model(x)
        torch.cuda.current_stream().synchronize()

    assert lines(step) == [3, 5]
    assert [sync.call for sync in syncs(step)] == ["cudaEventSynchronize", "cudaStreamSynchronize"]


def test_kinds_of_waits_do_not_take_each_others_lines():
    model, x = layers()
    event = torch.cuda.Event()

    def step() -> None:
        torch.cuda.synchronize()
        y = model(x)
        event.record()
        y.sum().item()
        event.synchronize()

    assert sorted(lines(step)) == [1, 4, 5]


def test_a_step_that_does_not_wait_has_no_syncs():
    model, x = layers()
    assert syncs(lambda: model(x).sum().backward()) == ()


# Idle time


def examined(step: Step) -> Exam:
    return examine(lambda: step, "made.py:up")


def test_a_small_step_waits_for_python_and_dispatch_and_says_where_it_reads():
    model, x = layers()
    made = examined(lambda: model(x).sum().item())
    found = diagnose(made)
    assert sum(found.idle_causes_s.values()) == pytest.approx(found.idle_s)
    assert made.idle["python"] + made.idle["dispatch"] > 0.5
    assert [sync.source is not None for sync in made.syncs] == [True]


def test_a_step_that_loads_its_data_waits_for_that():

    class Slow(TensorDataset):
        def __getitem__(self, index):
            for _ in range(20_000):
                pass
            return super().__getitem__(index)

    model, _ = layers()
    loader = DataLoader(Slow(torch.randn(32, 64)), batch_size=8)

    def step() -> None:
        for (batch,) in loader:
            model(batch.cuda())

    idle = examined(step).idle
    assert max(idle, key=idle.__getitem__) == "data_loading"


def test_a_replayed_graph_leaves_its_gaps_to_the_device():
    model, x = layers()
    stream = torch.cuda.Stream()
    with torch.no_grad(), torch.cuda.stream(stream):
        for _ in range(3):
            model(x)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        y = x
        for _ in range(50):
            y = model(y)
    timed = recorded(graph.replay, torch.cuda.synchronize, ops=False, steps=RECORDED_STEPS, lead_in=100)
    launches = {call.name for call in timed.runtime if "Launch" in call.name}
    assert launches == {"cudaGraphLaunch"}
    own = asked_for_within(timed)
    assert gap_before_s(own, RECORDED_STEPS) is not None
    assert latency_share(own, RECORDED_STEPS) > 0.5


# How the GPU was used


def test_while_the_step_is_timed_the_driver_is_asked():
    pytest.importorskip("pynvml")
    with torch.device("cuda"):
        x = torch.randn(4096, 4096)
    made = examined(lambda: x @ x)
    assert 0 <= made.gpu_util_percent <= 100
    assert made.gpu_clock_hz > 1e8
    assert made.gpu_power_w > 1
    assert made.gpu_memory_bytes > x.nbytes


def test_a_profiler_of_the_programs_own_between_two_examinations_costs_neither_its_links():
    model, x = layers()

    def step() -> torch.Tensor:
        return model(x)

    before = examine(lambda: step, "mine")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as own:
        step()
        torch.cuda.synchronize()
    after = examine(lambda: step, "mine")
    assert [event.name for event in own.events() if event.device_type == torch.autograd.DeviceType.CUDA]
    assert before.quality.linked_share == after.quality.linked_share == 1
