"""The step time on a fake clock: what the windows hold follows from what the step takes, exactly."""

import itertools
import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from dataclasses import replace as changed

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.stats import Sample
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.steady import (
    CUDA_STEP_EFFORT,
    LEAST_WINDOWS,
    LOOK,
    StepEffort,
    StepTimes,
    Trend,
    WarmUp,
    agree,
    slope,
    steps_per_window,
    time_steps,
    trend,
)

EFFORT = StepEffort(warmup_steps=50, warmup_s=100, window_s=1, window_steps=1, windows=10, budget_s=100)


@dataclass
class FakeDevice:
    """A clock that the steps move. What is enqueued runs beside the host, and a synchronisation waits for it."""

    host_s: float = 0.0
    device_s: float = 0.0
    sync_s: float = 0.0
    syncs: list[int] = field(default_factory=list)
    """Steps before each synchronisation."""
    steps: int = 0

    def now_s(self) -> float:
        return self.host_s

    def synchronize(self) -> None:
        self.host_s = max(self.host_s, self.device_s) + self.sync_s
        self.syncs.append(self.steps)

    def taking(self, durations_s: Iterable[float]) -> Callable[[], None]:
        """A step that keeps the host so long, and the device not at all."""
        durations = iter(durations_s)

        def step() -> None:
            self.steps += 1
            self.host_s += next(durations)

        return step

    def enqueuing(self, host_s: float, device_s: float) -> Callable[[], None]:
        def step() -> None:
            self.steps += 1
            self.host_s += host_s
            self.device_s = max(self.device_s, self.host_s) + device_s

        return step


def timed(durations_s: Iterable[float], effort: StepEffort = EFFORT) -> StepTimes:
    device = FakeDevice()
    return time_steps(device.taking(durations_s), device, effort)


def times(*windows_s: float, steady: bool = True, steps: int = 1) -> StepTimes:
    return StepTimes(WarmUp((1.0,), steady), Sample(windows_s), steps, windows_wanted=10)


# Warming up


def test_a_constant_step_is_its_own_time_without_doubt():
    found = timed(itertools.repeat(0.5))
    assert found.step_s == pytest.approx(0.5)
    assert found.warm_up.step_s == pytest.approx((0.5,) * LOOK)
    assert found.doubts == ()


def test_slow_first_steps_are_left_out_and_told_apart():
    found = timed([30.0, 4.0, 2.0, *[0.5] * 1000])
    assert found.warm_up.first_s == 30.0
    assert found.warm_up.is_steady
    assert set(found.windows.values) == {0.5}


def test_a_step_that_keeps_getting_quicker_is_not_steady():
    falling = [0.9**number for number in range(50)]
    assert not any(agree(falling[: end + LOOK][-LOOK:]) for end in range(44))


def test_a_step_that_never_settles_says_so_and_is_still_timed():
    found = timed(itertools.cycle([0.5, 1.0, 2.0]))
    assert len(found.warm_up.step_s) == EFFORT.warmup_steps
    assert not found.warm_up.is_steady
    assert "did not become steady within 50 steps" in found.doubts[0]


def test_warming_up_is_bounded_in_seconds_however_long_the_first_step_compiles():
    found = timed(itertools.chain([500.0], itertools.cycle([10.0, 20.0])), changed(EFFORT, warmup_s=30))
    assert found.warm_up.step_s == (500.0, 10.0, 20.0)


def test_of_a_step_that_takes_seconds_two_that_agree_are_enough():
    found = timed(itertools.chain([60.0], itertools.repeat(9.0)), changed(EFFORT, warmup_s=15))
    assert found.warm_up.step_s == (60.0, 9.0, 9.0)
    assert found.warm_up.is_steady


def test_one_interruption_among_the_last_steps_does_not_prolong_warming_up():
    assert agree([1.0, 1.0, 1.0, 5.0, 1.0, 1.0])
    assert agree([1.0, 1.0, 1.0, 1.0, 1.0, 5.0])


def test_one_step_agrees_with_nothing():
    assert not agree([1.0])


# Windows


def test_a_window_is_synchronised_once_at_its_end():
    device = FakeDevice()
    found = time_steps(device.taking(itertools.repeat(0.125)), device, EFFORT)
    assert found.window_steps == 8
    assert set(device.syncs[-20:]) == set(range(LOOK + 8, LOOK + 89, 8))  # before and after each, and a first one


def test_the_overlap_of_host_and_device_counts_as_in_a_loop():
    """Alone a step takes 0.3 + 0.7 s; in a loop the host runs ahead and only the first 0.3 s are seen."""
    device = FakeDevice()
    effort = changed(EFFORT, window_steps=10, single_steps=5)
    found = time_steps(device.enqueuing(host_s=0.3, device_s=0.7), device, effort)
    assert found.singles is not None
    assert found.singles.median == pytest.approx(1.0)
    assert found.step_s == pytest.approx((0.3 + 10 * 0.7) / 10)


def test_a_window_is_long_against_the_synchronisation():
    device = FakeDevice(sync_s=0.01)
    found = time_steps(device.taking(itertools.repeat(0.001)), device, EFFORT)
    assert found.step_s == pytest.approx(0.001, rel=0.0021)


def test_a_step_longer_than_a_window_fills_it_alone():
    assert steps_per_window(3.0, 0.0, EFFORT) == 1


def test_a_step_too_short_for_the_clock_has_windows_all_the_same():
    assert steps_per_window(0.0, 0.0, changed(EFFORT, window_steps=5)) == 5


@given(step_s=st.floats(1e-6, 1e3), sync_s=st.floats(0, 1), windows=st.integers(1, 50), least=st.integers(1, 20))
def test_the_windows_fit_the_budget_unless_a_single_step_does_not(step_s, sync_s, windows, least):
    effort = changed(EFFORT, windows=windows, window_steps=least)
    steps = steps_per_window(step_s, sync_s, effort)
    assert steps >= 1
    assert steps == 1 or windows * steps * step_s <= effort.budget_s * (1 + 1e-9)


def test_there_are_ten_windows_when_they_agree():
    assert len(timed(itertools.repeat(0.5)).windows.values) == 10


def test_windows_that_differ_are_followed_by_more_as_long_as_the_budget_lasts():
    wobbling = [0.5] * LOOK + [0.99, 1.01, 1.02, 1.03, 0.97, 0.98, 1.04] * 500
    found = timed(wobbling, changed(EFFORT, budget_s=30))
    assert 10 < len(found.windows.values) <= 31


def test_what_the_budget_cuts_short_says_so():
    found = timed(itertools.repeat(40.0), changed(EFFORT, warmup_s=1000))
    assert len(found.windows.values) == LEAST_WINDOWS
    assert "only 3 of 10 windows fit into the time" in found.doubts


@settings(max_examples=20)
@given(st.lists(st.floats(0.4, 0.6), min_size=10, max_size=10))
def test_the_time_lies_within_its_interval_and_that_within_what_was_seen(windows_s):
    found = times(*windows_s)
    low, high = found.interval_s.low, found.interval_s.high
    assert min(windows_s) <= low <= found.step_s <= high <= max(windows_s)


def test_single_steps_are_taken_only_on_demand_and_counted():
    assert timed(itertools.repeat(0.5)).singles is None
    found = timed(itertools.repeat(0.5), changed(EFFORT, single_steps=7))
    assert found.singles == Sample((0.5,) * 7)


def test_single_steps_end_with_the_budget():
    found = timed(itertools.repeat(30.0), changed(EFFORT, warmup_s=1000, single_steps=1000))
    assert found.singles is not None
    assert len(found.singles.values) == 4


# Trends and noise


def test_a_step_that_grows_says_by_how_much():
    """A leak: every step takes 1 ms longer than the one before."""
    found = timed(0.5 + 0.001 * number for number in itertools.count())
    assert found.trend is Trend.GROWS
    assert found.growth_s_per_step == pytest.approx(0.001)
    assert "each step takes 1.0 ms longer" in " ".join(found.doubts)


def test_a_step_that_still_gets_quicker_while_it_is_timed_says_so():
    found = times(*(1 - 0.02 * number for number in range(10)))
    assert found.trend is Trend.FALLS
    assert "still getting quicker" in found.doubts[0]


def test_a_few_slow_windows_are_no_growth():
    assert trend(Sample((1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 3.0, 3.0))) is Trend.FLAT


def test_growth_too_small_to_matter_is_none():
    assert trend(Sample(tuple(1 + 0.001 * number for number in range(10)))) is Trend.FLAT


def test_a_neighbour_who_comes_once_is_no_growth():
    """Every window after the 20th is half as long again, whatever small differences order them otherwise."""
    windows_s = [(1.0 if place < 20 else 1.5) + 0.001 * place for place in range(40)]
    assert trend(Sample(tuple(windows_s))) is Trend.FLAT


@pytest.mark.parametrize(("slope", "period"), [(0.005, 8), (0.015, 5)])
def test_a_host_that_wanders_is_no_trend(slope, period):
    """Seconds of other people's work make neighbouring windows alike: a slow wave that hides the slope."""
    windows_s = [1 + slope * place + 0.2 * math.sin(place / period) for place in range(40)]
    assert trend(Sample(tuple(windows_s))) is Trend.FLAT


@pytest.mark.parametrize("windows", [10, 40, 100])
def test_growth_is_seen_through_noise(windows):
    noise = random.Random(0)
    windows_s = [1 + 0.5 * place / windows + noise.gauss(0, 0.02) for place in range(windows)]
    assert trend(Sample(tuple(windows_s))) is Trend.GROWS


def test_noise_is_called_noise_and_growth_is_not():
    assert times(*[1.0, 1.5] * 5).is_noisy
    assert "differ by 40 %" in times(*[1.0, 1.5] * 5).doubts[0]
    assert not times(*(1 + 0.1 * number for number in range(10))).is_noisy


@given(st.lists(st.floats(0.1, 10), min_size=2, max_size=20), st.floats(0.01, 100))
def test_a_trend_does_not_depend_on_the_unit(values, scale):
    assert trend(Sample(tuple(values))) is trend(Sample(tuple(4 * value for value in values)))
    assert slope(Sample(tuple(scale * value for value in values))) == pytest.approx(
        scale * slope(Sample(tuple(values)))
    )


@given(st.lists(st.floats(0.1, 10), min_size=1, max_size=20))
def test_played_backwards_what_grows_falls(values):
    backwards = {Trend.FLAT: Trend.FLAT, Trend.GROWS: Trend.FALLS, Trend.FALLS: Trend.GROWS}
    assert trend(Sample(tuple(reversed(values)))) is backwards[trend(Sample(tuple(values)))]


# Around it


def test_progress_is_told_before_each_stage():
    device, told = FakeDevice(), []
    effort = changed(EFFORT, single_steps=3)
    time_steps(device.taking(itertools.repeat(0.5)), device, effort, progress=lambda *news: told.append(news))
    assert told == [(1, 3, "warming up"), (2, 3, "step time"), (3, 3, "single steps")]


def test_a_real_clock_times_a_real_step():
    brief = changed(EFFORT, window_s=0.001, budget_s=0.05, warmup_s=0.05, single_steps=3)
    found = time_steps(lambda: sum(range(1000)), DeviceClock("cpu"), brief)
    assert 0 < found.interval_s.low <= found.step_s <= found.interval_s.high
    assert found.window_steps > 1


@pytest.mark.gpu
def test_a_window_ends_when_the_device_is_done():
    """Far more work than the queue lets the host run ahead of: the last product is finished with the last window."""
    import torch

    square, done = torch.randn(2048, 2048, device="cuda"), []

    def step() -> None:
        torch.mm(square, square)
        done.append(torch.cuda.Event())
        done[-1].record()

    found = time_steps(step, DeviceClock("cuda:0"), changed(CUDA_STEP_EFFORT, budget_s=0.5))
    assert found.step_s > 0
    assert all(event.query() for event in done)


@pytest.mark.parametrize("raised", [KeyboardInterrupt, ValueError])
@pytest.mark.parametrize("after", [0, LOOK, LOOK + 3, LOOK + 25])
def test_what_the_step_raises_passes_through_wherever_it_happens(raised, after):
    device = FakeDevice()
    count = itertools.count()

    def step() -> None:
        if next(count) == after:
            raise raised
        device.host_s += 0.5

    with pytest.raises(raised):
        time_steps(step, device, changed(EFFORT, single_steps=10))
