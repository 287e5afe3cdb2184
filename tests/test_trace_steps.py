"""Steps of a trace, and how long they take without the profiler: against closed forms."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.timing.traces.links import find_steps, launched, shortest_period
from gobrrr.timing.traces.reading import read_trace
from gobrrr.timing.traces.replay import (
    AT_LEAST,
    LAUNCH_LATENCY_S,
    Cost,
    Piece,
    Request,
    Rows,
    play,
    undistorted_s,
)
from traces import Tape, additions

FREE = Cost(0.0, 0.0, 0.0)


def found(tape: Tape, tmp_path):
    trace = read_trace(tape.save(tmp_path / "t.json"))
    return trace, find_steps(trace, launched(trace))


def test_device_work_belongs_to_the_step_that_asked_for_it(tmp_path):
    """The device is four steps behind, and the first kernel was asked for before the recording."""
    trace, steps = found(additions(steps=5, kernel_us=300.0), tmp_path)
    assert steps.found_by == "annotation"
    assert [len(step.device) for step in steps.steps] == [2] * 5
    assert steps.outside == 1
    last = trace.columns.start_us[steps.steps[-1].device[-1][0]]
    assert last > steps.steps[-1].end_us


def test_without_marks_the_shortest_repeating_period_of_launches_is_the_step(tmp_path):
    tape = Tape()
    for number, name in enumerate(("a", "b", "b", "b", "c") * 6):
        tape.launch(name, 10.0 * number, 10.0 * number + 6, 3.0)
    _, steps = found(tape, tmp_path)
    assert steps.found_by == "period"
    assert {len(step.device) for step in steps.steps} == {5}


def test_an_optimizers_loop_over_parameters_is_no_step():
    """Nor are two of its rounds."""
    forward_and_backward, round_of_adam = list(range(17)), list(range(20, 28))
    assert shortest_period(forward_and_backward + 4 * round_of_adam) is None
    assert shortest_period(3 * (forward_and_backward + 4 * round_of_adam)) == (0, 17 + 4 * 8)


def test_layers_are_no_steps():
    """A model of 20 equal layers with two ends, once through: its layers repeat, it does not."""
    assert shortest_period([0, *([1, 2, 3, 4] * 20), 5]) is None


@given(st.lists(st.integers(0, 5), min_size=2, max_size=9), st.integers(3, 12))
def test_a_period_divides_what_was_repeated(names, times):
    result = shortest_period([*names] * times)
    assert result is not None
    first, length = result
    assert len(names) % length == 0 or length % len(names) == 0
    assert first < len(names)


def test_without_marks_or_a_period_all_is_one_step(tmp_path):
    tape = Tape()
    for number, name in enumerate("abcdefgh"):
        tape.launch(name, 10.0 * number, 10.0 * number + 6, 3.0)
    _, steps = found(tape, tmp_path)
    assert (steps.found_by, len(steps.steps[0].device)) == ("whole", 8)


def test_kernels_that_nobody_asked_for_stay_with_those_before_them(tmp_path):
    tape = additions(steps=2)
    last = max(event["ts"] for event in tape.events)
    tape.kernel("alone", last + 200.0, 10.0, correlation=888_888)
    _, steps = found(tape, tmp_path)
    assert [len(step.device) for step in steps.steps] == [2, 3]


def request(
    host_us: float, kernel_us: float | None, *, ops: int = 0, waits: bool = False, gap_us: float = 0.0
) -> Request:
    pieces = () if kernel_us is None else (Piece(0, 7, 0.0, kernel_us * 1e-6, gap_us * 1e-6),)
    return Request(host_us * 1e-6, Rows(ops, 0, 0), 0.0, pieces, waits)


@given(st.floats(1, 1000), st.floats(1, 1000), st.integers(1, 40))
def test_a_step_without_waits_takes_as_long_as_the_slower_side(host_us, kernel_us, launches):
    played = play([request(host_us, kernel_us)] * launches, FREE)
    host_s, device_s = host_us * launches * 1e-6, kernel_us * launches * 1e-6
    assert played.step_s == pytest.approx(max(host_s, device_s), rel=1e-6, abs=abs(host_us - kernel_us) * 1e-6 + 3e-6)
    assert played.host_s == pytest.approx(host_s)


@given(st.floats(1, 1000), st.floats(1, 1000))
def test_a_wait_after_each_kernel_makes_both_sides_add(host_us, kernel_us):
    played = play([request(host_us, kernel_us, waits=True)], FREE)
    assert played.step_s == pytest.approx((host_us + kernel_us) * 1e-6 + LAUNCH_LATENCY_S)


@given(st.floats(50, 1000), st.integers(0, 10), st.floats(0, 5))
def test_what_recording_costs_is_taken_off_the_host_alone(host_us, ops, cost_us):
    cost = Cost(cost_us * 1e-6, 0.0, 0.0)
    played = play([request(host_us, 1.0, ops=ops)] * 3, cost)
    assert played.step_s == pytest.approx(3e-6 * max(AT_LEAST * host_us, host_us - ops * cost_us), abs=4e-6)
    assert play([request(1.0, 500.0, ops=ops)] * 3, cost).step_s == pytest.approx(1500e-6, rel=0.01)


@given(st.floats(0, 1000), st.integers(0, 100), st.floats(0, 10), st.floats(0, 10))
def test_costlier_recording_never_makes_the_step_longer(host_us, ops, one_us, other_us):
    cheap, dear = sorted((one_us * 1e-6, other_us * 1e-6))
    step = request(host_us, 1.0, ops=ops)
    (more,), (less,) = (undistorted_s([step], Cost(op, 0, 0)) for op in (dear, cheap))
    assert more <= less <= host_us * 1e-6 + 1e-12


def test_kernels_of_a_graph_keep_their_distances():
    pieces = tuple(Piece(number, 7, number * 12e-6, 10e-6, 0.0) for number in range(5))
    played = play([Request(5e-6, Rows(0, 0, 0), 0.0, pieces, waits=False)], FREE)
    starts = [played.start_s[number] for number in range(5)]
    assert all(math.isclose(starts[n] - starts[0], n * 12e-6, abs_tol=1e-12) for n in range(5))
    assert played.step_s == pytest.approx(58e-6)
