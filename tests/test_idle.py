"""What the host did while the device was idle: from timelines made by hand, drawn ones, and recorded traces."""

import gzip
import json
import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader, TensorDataset

from gobrrr.timing.idle import (
    Cause,
    Gap,
    gap_before_s,
    gaps,
    host_causes,
    idle_shares,
    latency_share,
    named,
    serial_idle_shares,
    step_stretch,
    without,
)
from gobrrr.timing.recording import recorded
from gobrrr.timing.timeline import Span, SpanKind, Timeline, merged, timeline
from traces import shared

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def op(start: float, end: float, name: str = "aten::add", *, lane: int = 1) -> Span:
    return Span(SpanKind.OP, name, lane, start, end - start)


def call(start: float, end: float, name: str = "cudaLaunchKernel", correlation: int | None = None) -> Span:
    return Span(SpanKind.RUNTIME, name, 1, start, end - start, correlation=correlation)


def mark(start: float, end: float, name: str = LOADER) -> Span:
    return Span(SpanKind.ANNOTATION, name, 1, start, end - start)


def busy(start: float, end: float, correlation: int | None = None) -> Span:
    return Span(SpanKind.KERNEL, "kernel", 7, start, end - start, correlation=correlation)


# What a stretch is called


@pytest.mark.parametrize(
    ("span", "cause"),
    [
        (op(2, 5), Cause.DISPATCH),
        (call(2, 5), Cause.DISPATCH),
        (call(2, 5, "cudaGraphLaunch"), Cause.DISPATCH),
        (call(2, 5, "cudaStreamSynchronize"), Cause.SYNC),
        (call(2, 5, "hipDeviceSynchronize"), Cause.SYNC),
        (call(2, 5, "cudaMalloc"), Cause.ALLOCATION),
        (call(2, 5, "cudaFree"), Cause.ALLOCATION),
        (call(2, 5, "cudaHostAlloc"), Cause.ALLOCATION),
        (call(2, 5, "cudaMemcpyAsync"), Cause.COPY),
        (call(2, 5, "cudaMemsetAsync"), Cause.DISPATCH),
        (call(2, 5, "cudaStreamWaitEvent"), Cause.DISPATCH),
        (mark(2, 5), Cause.DATA_LOADING),
        (op(2, 5, "backend_compile (dynamo_timed)"), Cause.COMPILATION),
        (op(2, 5, "Torch-Compiled Region: 0/0"), Cause.DISPATCH),
        (mark(2, 5, "Optimizer.step#AdamW.step"), Cause.PYTHON),
    ],
    ids=lambda value: value.name if isinstance(value, Span) else value,
)
def test_an_idle_stretch_is_called_by_what_went_on_in_it_and_the_rest_is_python(span, cause):
    found = named([(0, 10)], [span])
    if cause is Cause.PYTHON:
        assert found == {cause: 10}
    else:
        assert found == {cause: 3, Cause.PYTHON: 7}


@pytest.mark.parametrize(
    ("inner", "outer", "cause"),
    [
        (op(2, 5), mark(0, 10), Cause.DATA_LOADING),
        (call(2, 5, "cudaStreamSynchronize"), op(0, 10), Cause.SYNC),
        (call(2, 5, "cudaMalloc"), op(0, 10), Cause.ALLOCATION),
        (call(2, 5, "cudaMemcpyAsync"), op(0, 10, "aten::copy_"), Cause.COPY),
        (call(2, 5, "cudaStreamSynchronize"), op(0, 10, "autotune (dynamo_timed)"), Cause.COMPILATION),
    ],
    ids=["collating", "a wait in an op", "the allocator", "a copy", "autotuning"],
)
def test_of_two_at_once_the_more_telling_is_named(inner, outer, cause):
    assert named([(2, 5)], [outer, inner]) == named([(2, 5)], [inner, outer]) == {cause: 3}


def test_all_threads_of_the_host_count():
    assert named([(0, 10)], [op(0, 4), op(3, 9, lane=2)]) == {Cause.DISPATCH: 9, Cause.PYTHON: 1}


STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(1, 12)), max_size=12)
NAMES = st.sampled_from(
    ["aten::add", "cudaMalloc", "cudaMemcpyAsync", "cudaStreamSynchronize", LOADER, "x (dynamo_timed)"]
)


def union(stretches: list[tuple[int, int]]) -> list[tuple[float, float]]:
    return merged([op(start, start + length) for start, length in stretches])


def moments(stretches) -> set[int]:
    return {at for start, end in stretches for at in range(int(start), int(end))}


@given(STRETCHES, STRETCHES)
def test_what_is_left_is_what_counting_each_moment_leaves(stretches, taken):
    left = without(union(stretches), union(taken))
    assert moments(left) == moments(union(stretches)) - moments(union(taken))
    assert sum(end - start for start, end in left) == len(moments(left))


@given(STRETCHES, st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12), NAMES), max_size=12))
def test_the_causes_add_up_to_all_idle_time(stretches, spans):
    idle = union(stretches)
    found = named(idle, [op(start, start + length, name) for start, length, name in spans])
    assert math.fsum(found.values()) == pytest.approx(sum(end - start for start, end in idle))
    assert all(part > 0 for part in found.values())


# Gaps


def test_a_gap_is_the_hosts_until_it_has_asked_and_the_devices_from_then_on():
    calls = Timeline(runtime=(call(0, 1, correlation=1), call(5, 6, correlation=2), call(6, 7, correlation=3)))
    device = [busy(2, 4, 1), busy(8, 9, 2), busy(11, 12, 3)]
    assert gaps(device, calls, (0, 15)) == [Gap(0, 1, 2), Gap(4, 6, 8), Gap(9, 9, 11), Gap(12, 15, 15)]


def test_what_was_asked_for_before_the_recording_and_later_nodes_of_a_graph_had_been_asked_for():
    calls = Timeline(runtime=(call(3, 30, "cudaGraphLaunch", correlation=5),))
    device = [busy(1, 2, 77), busy(6, 7, 5), busy(9, 10, 5), busy(14, 15, 5)]
    assert gaps(device, calls, (0, 15)) == [Gap(0, 0, 1), Gap(2, 6, 6), Gap(7, 7, 9), Gap(10, 10, 14)]


@given(STRETCHES, st.lists(st.integers(0, 80), min_size=12, max_size=12))
def test_gaps_and_busy_time_fill_the_stretch(stretches, asked):
    device = sorted((busy(s, s + n, place) for place, (s, n) in enumerate(stretches)), key=lambda span: span.start_s)
    calls = Timeline(runtime=tuple(call(at - 1, at, correlation=place) for place, at in enumerate(asked)))
    found = gaps(device, calls, (0, 80))
    assert moments((gap.start_s, gap.end_s) for gap in found) == set(range(80)) - moments(union(stretches))
    assert all(gap.start_s <= gap.asked_s <= gap.end_s for gap in found)


def test_a_step_ends_on_the_host_before_the_recordings_own_wait():
    own, profilers = call(50, 60, "cudaDeviceSynchronize"), call(66, 67, "cudaDeviceSynchronize")
    step = Timeline(ops=(op(5, 8),), runtime=(own, profilers), annotations=(mark(2, 62, "ProfilerStep#1"),))
    assert step_stretch(step) == (2, 50)
    longer = Timeline(step.ops, step.runtime, (busy(3, 59),), step.annotations)
    assert step_stretch(longer) == (2, 59)
    assert step_stretch(Timeline(ops=step.ops)) == (5, 8)
    assert step_stretch(Timeline()) == (0, 0)


def test_the_host_is_asked_for_the_gaps_it_made_and_for_no_others():
    """Python, dispatch, launch, kernel; a wait and its end; Python at the end. What ran before is not idle time."""
    recording = Timeline(
        ops=(op(10, 14),),
        runtime=(
            call(13, 14, correlation=1),
            call(15, 22, "cudaStreamSynchronize"),
            call(30, 40, "cudaDeviceSynchronize"),
        ),
        device=(busy(2, 8, 99), busy(16, 20, 1)),
        annotations=(mark(5, 41, "ProfilerStep#1"),),
    )
    assert host_causes(recording) == {Cause.DISPATCH: 4, Cause.SYNC: 2, Cause.PYTHON: 2 + 8}


# Proportions


def loop(*, launched: float, steps: int = 3) -> Timeline:
    """Steps of 10 with kernels at 1 to 4 and 6 to 9; the second was asked for at so much, the first in time."""
    runtime, device = [], []
    for step in range(steps):
        at = 10 * step
        runtime += [call(at - 3, at - 2, correlation=at), call(at + launched - 1, at + launched, correlation=at + 1)]
        device += [busy(at + 1, at + 4, at), busy(at + 6, at + 9, at + 1)]
    return Timeline(runtime=tuple(runtime), device=tuple(device))


@pytest.mark.parametrize(("launched", "share"), [(2, 1.0), (5, 0.75), (6, 0.5)])
def test_latency_is_the_part_of_the_gaps_after_the_launch(launched, share):
    """Two gaps of 2 in a step: the first is all latency."""
    assert latency_share(loop(launched=launched), 3) == pytest.approx(share)
    assert gap_before_s(loop(launched=launched), 3) == 2


def test_steps_that_cannot_be_told_apart_or_are_never_idle_have_no_latency_share():
    assert latency_share(Timeline(device=(busy(0, 1), busy(2, 3))), 3) is None
    assert gap_before_s(Timeline(device=(busy(0, 1), busy(2, 3))), 3) is None
    full = Timeline(device=tuple(busy(at, at + 1) for at in range(3)))
    assert (latency_share(full, 3), gap_before_s(full, 3)) == (None, 0)
    assert latency_share(Timeline(), 3) is None


def test_shares_take_the_latency_from_the_undistorted_recording_and_the_names_from_the_other():
    calls = (call(2, 3, correlation=1), call(9, 10, "cudaDeviceSynchronize"))
    linked = Timeline(ops=(op(0, 3),), runtime=calls, device=(busy(8, 9, 1),))
    shares = idle_shares(linked, loop(launched=6), 3)
    assert shares == pytest.approx({"launch_latency": 0.5, "dispatch": 0.5})
    assert idle_shares(linked, Timeline(), 3) is None
    assert idle_shares(Timeline(), loop(launched=6), 3) is None
    in_time = Timeline(device=(busy(0, 1), busy(2, 3)))
    assert idle_shares(in_time, loop(launched=5), 3) == {"launch_latency": 1.0}


# On a CPU


def test_on_a_cpu_dispatch_costs_what_it_costs_and_the_rest_is_what_went_on_between_the_ops():
    recording = Timeline(ops=(op(1, 3), op(5, 6)), annotations=(mark(0, 10, "ProfilerStep#1"), mark(0, 4)))
    shares = serial_idle_shares(recording, dispatch_s=2, idle_s=8)
    assert shares == pytest.approx({"dispatch": 0.25, "data_loading": 0.75 * 2 / 7, "python": 0.75 * 5 / 7})


@pytest.mark.parametrize("idle_s", [-1.0, 0.0, 1e-9, 1.0])
def test_on_a_cpu_shares_add_to_one_whatever_was_measured(idle_s):
    for recording in (Timeline(), Timeline(ops=(op(0, 1),))):
        shares = serial_idle_shares(recording, dispatch_s=1e-6, idle_s=idle_s)
        assert math.fsum(shares.values()) == pytest.approx(1)
        assert min(shares.values()) >= 0


def test_a_data_loader_in_a_recorded_step_is_seen():
    """The name of its annotation is torch's own, and nothing else tells."""
    batches = iter(DataLoader(TensorDataset(torch.randn(64, 3)), batch_size=4))

    def step() -> None:
        next(batches)[0].sum()

    found = recorded(step, lambda: None, ops=True)
    assert serial_idle_shares(found, dispatch_s=0, idle_s=1)["data_loading"] > 0


def test_compiling_in_a_recorded_step_is_seen():
    def fresh(x: torch.Tensor) -> torch.Tensor:
        return x.cos() + 1

    def step() -> None:
        torch._dynamo.reset()
        torch.compile(fresh, backend="eager")(torch.ones(3))

    shares = serial_idle_shares(recorded(step, lambda: None, ops=True), dispatch_s=0, idle_s=1)
    assert shares["compilation"] > 0


# Recorded traces of real GPUs

MODERN = {"Operator": "cpu_op", "Runtime": "cuda_runtime", "Kernel": "kernel", "Memcpy": "gpu_memcpy"}


def trace(name: str) -> Timeline:
    """With the names of today: old profilers called everything an operator, and numbered threads in text."""
    data = json.loads(gzip.decompress(shared(f"{name}.json.gz").read_bytes()))
    return timeline(_modern(event) for event in (data["traceEvents"] if isinstance(data, dict) else data))


def _modern(event: dict) -> dict:
    named = event.get("name", "").startswith(("ProfilerStep#", "enumerate(DataLoader)"))
    category = "user_annotation" if named and event.get("cat") == "Operator" else MODERN.get(event.get("cat"))
    lane = int("".join(filter(str.isdigit, str(event.get("tid")))) or 0)
    return {**event, "cat": category or event.get("cat"), "tid": lane}


def test_a_starved_training_loop_waits_for_its_data_and_a_fed_one_does_not():
    starved = host_causes(trace("public/v100_resnet50_workers0"))
    fed = host_causes(trace("public/v100_resnet50_workers4"))
    assert max(starved, key=starved.__getitem__) is Cause.DATA_LOADING
    assert starved[Cause.DATA_LOADING] > 0.7 * sum(starved.values())
    assert fed[Cause.DATA_LOADING] < 0.1 * sum(fed.values())


@pytest.mark.parametrize("name", ["llama1b_decode_reduce_overhead", "pointwise_chain"])
def test_where_everything_was_asked_for_in_time_the_host_is_not_to_blame(name):
    recording = trace(name)
    assert host_causes(recording) == {}
    assert gaps(recording.device, recording, step_stretch(recording))


@pytest.mark.parametrize("name", ["gpt2_train_b8x1024_bf16", "public/h100_bert_small", "public/h100_vit"])
def test_eager_steps_wait_for_python_and_dispatch(name):
    causes = host_causes(trace(name))
    assert causes[Cause.PYTHON] + causes[Cause.DISPATCH] > 0.95 * sum(causes.values())
    assert min(causes[Cause.PYTHON], causes[Cause.DISPATCH]) > 0
