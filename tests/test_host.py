"""What of a recorded stretch is the host's own time, from timelines made by hand."""

from dataclasses import replace

import pytest

from gobrrr.timing.host import FREE_LAUNCH_S, USUAL, host_s, host_share, steps_calls, waits
from gobrrr.timing.timeline import Span, SpanKind, Timeline

US = 1e-6


def call(start_us: float, end_us: float, name: str = "cudaLaunchKernel") -> Span:
    return Span(SpanKind.RUNTIME, name, 1, start_us * US, (end_us - start_us) * US)


def busy(start_us: float, end_us: float) -> Span:
    return Span(SpanKind.KERNEL, "kernel", 7, start_us * US, (end_us - start_us) * US)


def host_us(recorded: Timeline, steps: int) -> float:
    return host_s(recorded, steps) / US


def stretch(*calls: Span, device: tuple[Span, ...] = ()) -> Timeline:
    return Timeline(runtime=calls, device=device)


SYNC = "cudaStreamSynchronize"


def test_without_waiting_the_host_needs_its_wall_time():
    recorded = stretch(call(0, 1), call(4, 5), call(9, 10), device=(busy(1, 12),))
    assert host_us(recorded, 1) == pytest.approx(10)
    assert host_us(recorded, 5) == pytest.approx(2)


def test_a_host_that_never_waits_and_is_behind_needs_all_of_the_step_however_long_it_took():
    for slower in (1, 3):
        calls = [call(10 * slower * i, 10 * slower * i + 4) for i in range(3)]
        recorded = stretch(*calls, device=tuple(busy(10 * slower * i + 4, 10 * slower * i + 6) for i in range(3)))
        assert host_share(recorded, 1) == pytest.approx(1, abs=0.1)


def test_a_host_that_runs_ahead_needs_what_it_took_of_what_the_device_took():
    recorded = stretch(*(call(2 * i, 2 * i + 2) for i in range(5)), device=(busy(1, 101),))
    assert host_share(recorded, 1) == pytest.approx(10 / 100)


def test_what_the_device_still_had_to_do_when_the_recording_began_makes_no_step_longer():
    """As before a wait for data, which the first step has behind it when its first call is recorded."""
    own = stretch(*(call(100 * i, 100 * i + 4) for i in range(1, 4)), device=(busy(104, 304),))
    earlier = replace(own, device=(busy(0, 1)._replace(correlation=99), *own.device))
    assert host_share(earlier, 3) == host_share(own, 3) == pytest.approx(1, abs=0.05)


def test_waiting_in_a_sync_is_not_host_time_but_its_own_cost_is():
    recorded = stretch(call(0, 1), call(2, 20, SYNC), call(30, 31), device=(busy(1, 18), busy(31, 40)))
    assert host_us(recorded, 1) == pytest.approx(31 - (18 - 2))


def test_a_sync_with_an_idle_device_is_all_cost():
    recorded = stretch(call(0, 1), call(20, 23, SYNC), call(30, 31), device=(busy(1, 18),))
    assert host_us(recorded, 1) == pytest.approx(31)


@pytest.mark.parametrize("name", ["cudaDeviceSynchronize", "hipDeviceSynchronize"])
def test_the_final_wait_for_the_device_is_not_the_steps(name):
    alone = stretch(call(0, 1), call(4, 5), device=(busy(1, 30),))
    ended = stretch(*alone.runtime, call(6, 31, name), call(31, 33, name), device=alone.device)
    assert host_us(ended, 1) == host_us(alone, 1) == pytest.approx(5)
    assert steps_calls(ended) == alone.runtime


def test_a_launch_that_waited_in_a_full_queue_is_not_host_time_but_a_usual_launch_is():
    blocked = [call(0, 1), call(1, 2), call(2, 22), call(22, 23)]
    assert host_us(stretch(*blocked, device=(busy(0, 40),)), 1) == pytest.approx(4)


def test_launches_that_all_found_the_queue_full_are_waiting():
    blocked = [call(1000 * number, 1000 * (number + 1)) for number in range(10)]
    assert host_us(stretch(*blocked, device=(busy(0, 20_000),)), 1) == pytest.approx(10 * FREE_LAUNCH_S / US)


def test_a_slow_launch_on_an_idle_device_is_the_hosts_own():
    """A lazily loaded kernel is read from disk while nothing runs."""
    assert host_us(stretch(call(0, 1), call(1, 2), call(2, 22), call(22, 23)), 1) == pytest.approx(23)


def test_a_launch_within_the_usual_is_never_waiting():
    slow = call(2, 2 + USUAL)
    calls = (call(0, 1), call(1, 2), slow, call(2 + USUAL, 3 + USUAL))
    assert host_us(stretch(*calls, device=(busy(0, 40),)), 1) == pytest.approx(3 + USUAL)


@pytest.mark.parametrize("name", ["cudaMemcpyAsync", "cudaMemcpy", "hipMemcpyWithStream"])
def test_a_copy_from_pageable_memory_waits_and_one_that_is_only_asked_for_does_not(name):
    def around(copy: Span) -> Timeline:
        return stretch(call(0, 1), copy, call(30, 31), device=(busy(1, 26),))

    assert host_us(around(call(2, 26, name)), 1) == pytest.approx(31 - (26 - 2) + 1)
    assert host_us(around(call(2, 3, name)), 1) == pytest.approx(31)


def test_overlapping_streams_are_waited_for_once():
    device = (busy(1, 10), busy(3, 12), busy(11, 18))
    recorded = stretch(call(0, 1), call(2, 20, SYNC), call(20, 21), device=device)
    assert host_us(recorded, 1) == pytest.approx(21 - 16)


@pytest.mark.parametrize("recorded", [Timeline(), stretch(call(0, 1, "cudaDeviceSynchronize"))])
def test_where_nothing_was_asked_for_nobody_knows(recorded):
    assert host_s(recorded, 1) is None


# Waits of one step


def recorded_steps(*step: tuple[str, bool], steps: int = 3, device: str = "cudaDeviceSynchronize") -> Timeline:
    """So many steps of these calls, each with whether it launched something, and the two waits that end a recording."""
    calls = [*step] * steps + [(device, False)] * 2
    runtime = [
        Span(SpanKind.RUNTIME, name, 1, 10 * place * US, US, correlation=place) for place, (name, _) in enumerate(calls)
    ]
    launched = [runtime[place] for place, (_, launches) in enumerate(calls) if launches]
    device_spans = tuple(
        Span(SpanKind.KERNEL, "kernel", 7, call.end_s, US, correlation=call.correlation) for call in launched
    )
    return Timeline(runtime=tuple(runtime), device=device_spans)


LAUNCH, COPY, SYNCED = ("cudaLaunchKernel", True), ("cudaMemcpyAsync", True), (SYNC, False)
WHOLE, EVENT = ("cudaDeviceSynchronize", False), ("cudaEventSynchronize", False)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ([LAUNCH, LAUNCH], []),
        ([LAUNCH, COPY, SYNCED], [SYNC]),
        ([LAUNCH, COPY, SYNCED, LAUNCH, COPY, SYNCED], [SYNC, SYNC]),
        ([LAUNCH, WHOLE], ["cudaDeviceSynchronize"]),
        ([WHOLE, LAUNCH], ["cudaDeviceSynchronize"]),
        ([EVENT, LAUNCH, COPY, SYNCED, WHOLE], [SYNC, "cudaDeviceSynchronize", "cudaEventSynchronize"]),
        ([LAUNCH, ("hipMemcpyWithStream", True)], ["hipMemcpyWithStream"]),
        ([SYNCED], []),
    ],
    ids=["none", "a copy", "two copies", "at its end", "at its start", "all kinds", "ROCm", "nothing launched"],
)
@pytest.mark.parametrize("steps", [3, 4, 5])
def test_the_waits_of_a_step_are_its_own_and_not_the_recordings(step, expected, steps):
    assert [wait.name for wait in waits(recorded_steps(*step, steps=steps), steps)] == expected
