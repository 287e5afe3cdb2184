"""A first step that takes longer than the budget is given up, and nothing else is."""

import signal
import time
from contextlib import suppress

import pytest

from gobrrr.treat.patience import given_up_after
from gobrrr.treat.treatment import Unfit


def compile_for_ever():
    while True:
        with suppress(Exception):  # as compilers do
            time.sleep(10)


def test_what_takes_too_long_is_given_up():
    with pytest.raises(Unfit, match=r"longer than 20\.0 ms"), given_up_after(0.02):
        compile_for_ever()


def test_what_ends_in_time_leaves_no_alarm():
    before = signal.getsignal(signal.SIGALRM)
    with given_up_after(60):
        assert signal.getitimer(signal.ITIMER_REAL)[0] > 0
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) is before


def test_an_alarm_of_somebody_elses_is_left_alone():
    signal.setitimer(signal.ITIMER_REAL, 1000)
    try:
        with given_up_after(0.0001):
            assert signal.getitimer(signal.ITIMER_REAL)[0] > 900
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


@pytest.mark.parametrize("left_s", [0.0, -1.0])
def test_where_nothing_is_left_nothing_begins(left_s):
    """An alarm of no seconds would never ring."""
    with pytest.raises(Unfit, match="nothing is left"), given_up_after(left_s):
        pytest.fail("it has begun")
