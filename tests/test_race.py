"""Races on a fake clock: the ratio is that of the two steps, however they differ."""

import operator
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.timing.steady import StepEffort
from gobrrr.treat.race import LEAST_BLOCKS, Race, race
from test_steady import FakeDevice

EFFORT = StepEffort(warmup_steps=50, warmup_s=100, window_s=1, window_steps=5, windows=10, budget_s=100)


def raced(device: FakeDevice, before: Callable[[], None], after: Callable[[], None]) -> Race:
    force = [after]

    def step() -> None:
        force[0]()

    return race(
        step, device, EFFORT, lambda: operator.setitem(force, 0, before), lambda: operator.setitem(force, 0, after)
    )


def test_a_synchronisation_is_no_part_of_a_step_however_much_quicker_it_became():
    device = FakeDevice(sync_s=2e-3)
    found = raced(device, device.enqueuing(0.2, 0.0), device.enqueuing(1e-3, 9e-3))
    assert found.step_s == pytest.approx(9e-3, rel=0.005)
    assert found.comparison.speedup == pytest.approx(0.2 / 9e-3, rel=0.005)


@given(before_s=st.floats(1e-3, 1), after_s=st.floats(1e-3, 1))
@settings(max_examples=50, deadline=None)
def test_the_ratio_is_that_of_the_steps_whichever_is_quicker(before_s, after_s):
    device = FakeDevice()
    found = raced(device, device.enqueuing(before_s, 0), device.enqueuing(after_s, 0))
    assert found.comparison.speedup == pytest.approx(before_s / after_s)
    assert found.apart == 1
    assert found.is_won == (before_s / after_s > 1.01)


@pytest.mark.parametrize(("last_s", "apart"), [(1.0, 1), (1.005, 1), (1.03, 1.03), (1 / 1.03, 1.03), (1.5, 1.5)])
def test_the_interval_is_wider_by_as_much_as_the_untreated_step_lies_from_itself(last_s, apart):
    blocks = 6
    found = Race(((1.0, last_s),) * blocks, ((0.2, 0.2),) * blocks)
    speedup = (1 + last_s) / 0.4
    assert found.apart == pytest.approx(apart)
    assert found.comparison.speedup == pytest.approx(speedup)
    assert found.comparison.interval.low == pytest.approx(speedup / apart)
    assert found.comparison.interval.high == pytest.approx(speedup * apart)
    assert found.is_won, "five times as fast is no doubt of a few percent"


def test_what_takes_twice_as_long_and_longer_than_a_race_should_is_timed_no_better():
    device = FakeDevice()
    found = raced(device, device.enqueuing(0.1, 0), device.enqueuing(40, 0))
    assert len(found.after_s) == 1
    assert found.comparison.interval.high < 1
    assert len(raced(device, device.enqueuing(30, 0), device.enqueuing(40, 0)).after_s) >= LEAST_BLOCKS


def test_what_helps_by_less_than_the_untreated_step_lies_from_itself_is_not_decided():
    found = Race(((1.0, 1.05),) * 6, ((1.0, 1.0),) * 6)
    assert not found.is_won
    assert found.is_open
