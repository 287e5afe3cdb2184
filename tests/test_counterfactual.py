"""What a step would take if one of its two sides needed less."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.counterfactual import Sides, at_stake, step_s

TIMES = st.floats(0, 10)
SIDES = st.builds(Sides, TIMES, TIMES, st.booleans())


def test_host_and_device_work_side_by_side_unless_they_are_one():
    assert step_s(3.0, 2.0, serial=False) == 3.0
    assert step_s(3.0, 2.0, serial=True) == 5.0


@given(SIDES)
def test_changing_nothing_gives_nothing(sides):
    assert at_stake(sides) == 0


def test_changing_nothing_gives_nothing_even_if_the_host_is_unknown():
    assert at_stake(Sides(None, 2.0, serial=False)) == 0


@pytest.mark.parametrize(
    ("host_less_s", "device_less_s", "gained_s"),
    [(0, 30, 0), (20, 0, 20), (90, 0, 49), (60, 10, 59), (60, 41, 60)],
    ids=["the device alone", "the host a little", "the host to nothing", "both", "the device to nothing"],
)
def test_what_the_faster_side_saves_is_saved_for_nothing(host_less_s, device_less_s, gained_s):
    bert = Sides(host_s=90, device_s=41, serial=False)
    assert at_stake(bert, host_less_s=host_less_s, device_less_s=device_less_s) == gained_s


def test_on_a_cpu_what_either_side_saves_is_saved():
    assert at_stake(Sides(1.0, 9.0, serial=True), host_less_s=0.5, device_less_s=3.0) == 3.5


def test_of_an_unknown_host_only_device_seconds_are_known():
    assert at_stake(Sides(None, 2.0, serial=False), device_less_s=1.0) is None


@given(SIDES, st.floats(-10, 10), st.floats(-10, 10))
def test_a_gain_is_never_below_nothing_nor_above_the_step(sides, host_less_s, device_less_s):
    gained_s = at_stake(sides, host_less_s=host_less_s, device_less_s=device_less_s)
    assert 0 <= gained_s <= step_s(sides.host_s, sides.device_s, serial=sides.serial)


@given(SIDES, st.floats(0, 10), st.floats(0, 10))
def test_a_gain_is_at_most_what_was_taken_off(sides, host_less_s, device_less_s):
    assert at_stake(sides, host_less_s=host_less_s, device_less_s=device_less_s) <= host_less_s + device_less_s + 1e-9
