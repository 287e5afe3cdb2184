"""The batch test: what is doubled, how both are timed, and what the ratio means."""

import itertools
from typing import NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from counting import programmed
from gobrrr import Workload, schema
from gobrrr.diagnose.batch import FLAT, GROWN, BatchCall, batch_verdict, called
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import UsageError
from gobrrr.exam import BatchTest, Exam
from gobrrr.stats import Interval
from gobrrr.timing.batch import alternating_windows, doubled
from gobrrr.work.signature import known_work
from test_exam import exam, full_exam, small_program
from test_residency import Tape
from test_steady import EFFORT, FakeDevice

# What is doubled


class Pair(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor


def shapes(inputs):
    """The same nesting, with shapes for tensors."""
    if isinstance(inputs, dict):
        return {key: shapes(part) for key, part in inputs.items()}
    if isinstance(inputs, tuple | list):
        return [shapes(part) for part in inputs]
    return tuple(inputs.shape) if isinstance(inputs, torch.Tensor) else inputs


def ones(*shape):
    return torch.ones(shape)


@pytest.mark.parametrize(
    ("inputs", "dim", "expected"),
    [
        (ones(4, 6), 0, (8, 6)),
        (ones(4, 6), 1, (4, 12)),
        (ones(4, 6), -1, (4, 12)),
        ((ones(4, 6), ones(4)), 0, [(8, 6), (8,)]),
        ([ones(4, 6), ones(6, 6)], 0, [(8, 6), (6, 6)]),
        ((ones(), ones(4, 6)), 0, [(), (8, 6)]),
        ({"x": ones(4), "mask": None, "more": {"y": ones(4, 1)}}, 0, {"x": (8,), "mask": None, "more": {"y": (8, 1)}}),
        (Pair(ones(4), ones(3)), 0, [(8,), (3,)]),
        ((3, ones(4)), 0, [3, (8,)]),
    ],
)
def test_every_tensor_that_has_the_batch_is_doubled_and_no_other(inputs, dim, expected):
    twice = doubled(Workload(nn.Identity(), inputs, batch_dim=dim)).inputs
    assert shapes(twice) == expected
    assert type(twice) is type(inputs)


def test_the_second_half_is_the_first_and_the_users_tensors_stay():
    x = torch.arange(6.0).reshape(3, 2).requires_grad_()
    twice = doubled(Workload(nn.Identity(), x)).inputs
    assert torch.equal(twice[:3], twice[3:])
    assert torch.equal(twice[:3], x)
    assert (twice.is_leaf, twice.requires_grad, x.shape) == (True, True, (3, 2))


@pytest.mark.parametrize("inputs", [(), 3, ones(), {"x": None}])
def test_inputs_without_a_batch_are_a_mistake_of_usage(inputs):
    with pytest.raises(UsageError, match="no tensor in the workload's inputs has a dimension 0"):
        doubled(Workload(nn.Identity(), inputs))


# How both are timed


def test_both_are_timed_in_turn_a_window_each():
    device = FakeDevice()
    one, two = device.taking(itertools.repeat(2.0)), device.taking(itertools.repeat(3.0))
    assert alternating_windows(one, two, device, EFFORT, 2) == ((2.0, 3.0),) * 10


def test_a_drift_that_hits_both_leaves_the_ratio():
    device = FakeDevice()
    slowing = (1.05**turn for turn in itertools.count())
    mood = itertools.chain([1.0] * 6, (pace for pace in slowing for _ in range(2)))  # a warm-up, then pairs
    one, two = device.taking(2.0 * pace for pace in mood), device.taking(3.0 * pace for pace in mood)
    pairs = alternating_windows(one, two, device, EFFORT, 1)
    verdict = batch_verdict(exam(batch_test=BatchTest(pairs, None)), None)
    assert (verdict.ratio, verdict.ratio_low, verdict.ratio_high) == pytest.approx((1.5, 1.5, 1.5))


def test_a_long_step_gets_as_many_pairs_as_the_budget_allows_and_never_fewer_than_three():
    device = FakeDevice()
    one, two = device.taking(itertools.repeat(50.0)), device.taking(itertools.repeat(60.0))
    assert alternating_windows(one, two, device, EFFORT, 1) == ((50.0, 60.0),) * 3


# What the ratio means

SHARES = {"compute": 0.0, "bandwidth": 0.0, "overhead": 0.0, "communication": 0.0, "uncounted": 0.0}


def where(**shares: float) -> dict[str, float]:
    return {**SHARES, **shares}


def call(ratio, bytes_ratio=2.0, shares=None, width=0.0) -> BatchCall:
    return called(ratio, Interval(ratio - width / 2, ratio + width / 2), bytes_ratio, shares)


@given(st.floats(0.01, 1), st.floats(0, 1))
def test_the_part_that_does_not_grow_is_read_off_the_ratio(step_s, rest):
    """T(B) = rest + grows · B: a step that is all rest is called overhead, one that is all growth work."""
    twice_s = step_s * (rest + 2 * (1 - rest))
    verdict = batch_verdict(exam(batch_test=BatchTest(((step_s, twice_s),) * 5, None)), where(overhead=1.0))
    assert verdict.ratio == pytest.approx(2 - rest)
    expected = BatchCall.OVERHEAD if rest > 0.751 else BatchCall.WORK if rest < 0.249 else None
    assert expected in (None, verdict.verdict)


@pytest.mark.parametrize(
    ("ratio", "expected"),
    [(0.98, "overhead"), (1.0, "overhead"), (1.2, "overhead"), (1.5, "partly"), (1.8, "work"), (2.3, "work")],
)
def test_a_larger_batch_that_costs_nothing_means_overhead_and_one_that_costs_double_work(ratio, expected):
    assert call(ratio) == expected


def test_flat_time_with_flat_bytes_is_bandwidth_where_weights_fill_the_step():
    """The footnote: B < D raises intensity instead of time."""
    assert call(1.05, bytes_ratio=1.1, shares=where(bandwidth=0.8, overhead=0.2)) is BatchCall.BANDWIDTH
    assert call(1.05, bytes_ratio=1.1, shares=where(bandwidth=0.2, overhead=0.8)) is BatchCall.OVERHEAD
    assert call(1.05, bytes_ratio=1.1, shares=None) is BatchCall.UNDECIDED
    assert call(1.05, bytes_ratio=1.9, shares=where(bandwidth=0.8, overhead=0.2)) is BatchCall.OVERHEAD


@pytest.mark.parametrize("ratio", [1.0, 1.5, 2.0])
def test_an_interval_from_flat_to_grown_decides_nothing(ratio):
    assert call(ratio, width=GROWN - FLAT) is BatchCall.UNDECIDED


@given(st.integers(1, 64), st.integers(64, 512))
def test_the_bytes_of_a_product_grow_less_than_the_batch(batch, width):
    """[B, D] x [D, D] moves D² + 2BD elements: flat for B ≪ D."""
    tape = Tape()
    tape.product(tape.tensor(batch, width), tape.tensor(width, width))
    test = BatchTest(((1.0, 1.0),) * 3, 4.0 * (width**2 + 4 * batch * width))
    verdict = batch_verdict(exam(program=tape.program, batch_test=test), None)
    assert verdict.bytes_ratio == pytest.approx((width + 4 * batch) / (width + 2 * batch))


def test_the_counted_bytes_are_those_of_the_closed_form():
    model, x = nn.Linear(32, 32, bias=False), torch.ones(4, 32)
    moved = known_work(programmed(doubled(Workload(model, x)).step)).bytes
    assert moved == 4 * (32 * 32 + 2 * 8 * 32)


def test_an_exam_without_a_batch_test_has_no_verdict_and_neither_has_one_that_failed():
    assert batch_verdict(exam(), None) is None
    assert batch_verdict(exam(batch_test=BatchTest((), None, "no labels")), None) is None


def test_the_batch_test_survives_the_disk_and_stands_in_the_diagnosis(tmp_path):
    tested = full_exam(small_program())
    tested = schema.from_document(Exam, {**schema.document_data(tested), "batch_test": None})
    assert schema.document_data(diagnose(tested))["batch_test"] is None
    whole = exam(batch_test=BatchTest(((1.0, 1.9), (1.1, 2.2)), 100.0))
    schema.write(whole, tmp_path / "exam.json")
    back = schema.read(Exam, tmp_path / "exam.json")
    assert back == whole
    assert schema.document_data(diagnose(back))["batch_test"]["verdict"] == "work"


def test_an_exam_from_before_there_were_batch_tests_is_read():
    data = schema.document_data(full_exam(small_program()))
    del data["batch_test"]
    assert schema.from_document(Exam, data) == full_exam(small_program())
