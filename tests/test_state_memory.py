"""Where the copies lie: beside the originals, on the host, or nowhere for want of room."""

import functools
from typing import Any

import pytest
import torch
from torch import nn

from gobrrr.errors import Missing, UsageError
from gobrrr.timing.state import contents, preserved
from gobrrr.workload import Workload
from test_state import ADAMW, SGD, bits, picture, randomness, workload


def test_without_room_for_a_copy_it_says_so_and_changes_nothing(monkeypatch):
    patient = workload(steps=1)
    before = picture([patient.model, patient.optimizer]), randomness()
    monkeypatch.setattr(contents, "free_host_bytes", lambda: 100)
    with pytest.raises(Missing, match="more than is free"), preserved(patient):
        pytest.fail("it ran")
    assert (picture([patient.model, patient.optimizer]), randomness()) == before


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_an_allocator_that_gives_up_is_missing_memory(monkeypatch, error):
    def give_up(*_: Any) -> None:
        raise error

    monkeypatch.setattr(contents, "copies", give_up)
    with pytest.raises(Missing, match="takes 784 B"), preserved(workload()):
        pytest.fail("it ran")


def test_parameters_without_a_shape_are_refused():
    with pytest.raises(UsageError, match="run it once before"), preserved(Workload(nn.LazyLinear(2), torch.ones(1, 1))):
        pytest.fail("it ran")


# On a device


@pytest.fixture(params=["beside", "on the host", "where memory is in pieces"])
def copies_lie(request, monkeypatch) -> str:
    """Where a CUDA device's copies go, and why."""
    copies = contents.copies

    def in_pieces(stretches: Any, device: torch.device) -> Any:
        if device.type == "cuda":
            raise torch.OutOfMemoryError
        return copies(stretches, device)

    if request.param == "on the host":
        monkeypatch.setattr(contents, "free_bytes", lambda device: 0 if device.type == "cuda" else 1 << 40)
    elif request.param == "where memory is in pieces":
        monkeypatch.setattr(contents, "copies", in_pieces)
    return request.param


@pytest.mark.gpu
@pytest.mark.parametrize(
    "optimizer", [SGD, functools.partial(ADAMW, fused=True), functools.partial(ADAMW, foreach=True)]
)
@pytest.mark.parametrize("steps", [0, 2])
def test_training_on_a_device_leaves_no_trace(optimizer, steps, copies_lie):
    patient = workload(optimizer, steps, device="cuda")

    def seen() -> Any:
        return picture([patient.model, patient.optimizer, patient.inputs]), bits(torch.cuda.get_rng_state())

    before = seen()
    with preserved(patient) as kept:
        for _ in range(3):
            patient.step()
        assert seen() != before
    assert seen() == before
    assert (kept.device_bytes > 0) == (copies_lie == "beside")


@pytest.mark.gpu
def test_what_a_side_stream_still_writes_is_waited_for():
    weights, stream = torch.zeros(1 << 24, device="cuda"), torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(stream):
            for _ in range(200):
                weights.add_(1)

    torch.cuda.synchronize()
    with preserved(step):
        step()
    torch.cuda.synchronize()
    assert not weights.any()


@pytest.mark.gpu
def test_no_stream_writes_or_reads_before_the_copies_are_made():
    weights, stream = torch.zeros(1 << 30, device="cuda"), torch.cuda.Stream()

    def step() -> None:
        with torch.cuda.stream(stream):
            weights[-1:].add_(1)

    step()
    torch.cuda.synchronize()
    with preserved(step):
        step()  # takes microseconds, where the copy before it takes milliseconds
    with torch.cuda.stream(stream):
        assert weights[-1].item() == 1


@pytest.mark.gpu
def test_what_a_graph_writes_comes_back_and_its_hidden_tensors_are_named():
    weights, graph = torch.zeros(8, device="cuda"), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        weights.add_(1)
    weights.zero_()
    with preserved(lambda: (graph.replay(), weights)) as kept:
        graph.replay()
    assert not weights.any()
    assert kept.beyond == ("the tensors of a CUDA graph",)


@pytest.mark.gpu
def test_a_model_on_two_devices_comes_back_on_both():
    halves = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, device="cuda"))
    before = picture(halves)
    with preserved(lambda: halves):
        for p in halves.parameters():
            p.data.zero_()
        halves.cuda()
    assert picture(halves) == before
