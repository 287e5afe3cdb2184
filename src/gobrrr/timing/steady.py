"""T, the step time: warm until steady, then windows of steps back to back with one synchronisation each.

A step that is synchronised alone pays for what no loop pays: the host waits for the device, then the device for
the host. In a window of N steps that happens once, so that total / N is what a training loop would see.
Nothing here is watched by a profiler, and everything follows from what the clock says.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import combinations
from statistics import median

from gobrrr import units
from gobrrr.machine.measure import Progress
from gobrrr.stats import Interval, Sample
from gobrrr.steps import Steps, retried, stepwise
from gobrrr.timing.clock import Clock

LOOK = 6
"""Single steps that are looked at to call a step steady. A compiled step is slow once, a graphed one twice more
(it is run, recorded, replayed), so six alike are past all of that."""

AGREE = 0.10
"""Spread of those steps at most. On a host with other guests single steps scatter by a few percent for ever;
what warms up halves its time or more."""

FALLING = 0.05
"""If the last three are quicker than the three before by more, they are still getting quicker."""

SYNCS_PER_WINDOW = 500
"""A window as long as so many empty synchronisations: the one at its end then adds less than 0.2 %."""

LEAST_WINDOWS = 3
"""Taken whatever they cost, for without them there is no median."""

NARROW = 0.01
"""An interval of this width, relative to T, is worth no more windows."""

MOST_WINDOWS = 100

TREND_Z = 3.0
"""Mann and Kendall's statistic beyond which an order of values is no accident: once in 370 samples without trend."""

TREND_RISE = 0.05
"""And the change over all windows, relative to T, below which nobody cares."""

TREND_GOES_ON = 1 / 3
"""Of that change per window, what either half of them must show alone: a neighbour who comes or goes changes the time
once, and what settles has settled."""

TREND_SCATTER = 6
"""And what the change must exceed, in median distances of the windows from their line: a busy host wanders for seconds,
and of values that follow each other the statistic above thinks too highly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEffort:
    """How long timing may take: enough for the median to hold, little enough that a person waits."""

    warmup_steps: int
    """At most, for a step that will not become steady."""
    warmup_s: float
    """At most, after the first step: that one may compile for minutes and says nothing about those to come."""
    window_s: float
    """A window is at least this long where the budget allows it: long against scheduling and interrupts."""
    window_steps: int
    """And at least so many steps: the device lags behind the host by up to a step when the clock stops, and what
    that adds is spread over them. A CPU has no lag."""
    windows: int
    budget_s: float
    """For all windows. If it is spent, fewer count and a doubt says so; if it is not, a wide interval gets more."""
    single_steps: int = 0
    """Steps synchronised one by one, at most, for their distribution: another quantity than T."""


CUDA_STEP_EFFORT = StepEffort(warmup_steps=50, warmup_s=15, window_s=0.1, window_steps=5, windows=10, budget_s=8)
CPU_STEP_EFFORT = StepEffort(warmup_steps=50, warmup_s=15, window_s=0.1, window_steps=1, windows=10, budget_s=8)


class Trend(StrEnum):
    """What the step's time does while it is run again and again."""

    FLAT = "flat"
    GROWS = "grows"
    FALLS = "falls"


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The single, synchronised steps before the first window."""

    step_s: tuple[float, ...]
    is_steady: bool

    @property
    def first_s(self) -> float:
        """Compilation, autotuning, the allocator's growth and lazy optimizer state are in here."""
        return self.step_s[0]

    @property
    def settled_s(self) -> float:
        """Of the last few, without the first: what a step will roughly take."""
        return median(self.step_s[1:][-LOOK:] or self.step_s)

    @property
    def total_s(self) -> float:
        return sum(self.step_s)


@dataclass(frozen=True, slots=True)
class StepTimes:
    """What timing saw, raw; T, its interval and the doubts are derived."""

    warm_up: WarmUp
    windows: Sample
    """Seconds of one step, once per window, in the order they were taken."""
    window_steps: int
    windows_wanted: int
    singles: Sample | None = None
    """Seconds of single synchronised steps, if they were asked for."""

    @property
    def step_s(self) -> float:
        """T."""
        return self.windows.median

    @property
    def interval_s(self) -> Interval:
        """95 % of T."""
        return self.windows.interval()

    @property
    def is_noisy(self) -> bool:
        return self.windows.is_noisy and self.trend is Trend.FLAT

    @property
    def trend(self) -> Trend:
        return trend(self.windows)

    @property
    def growth_s_per_step(self) -> float:
        """By how much each step takes longer than the one before."""
        return slope(self.windows) / self.window_steps

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why T may be wrong, one sentence each; none is the rule."""
        said = (
            (not self.warm_up.is_steady, _unsteady(self.warm_up)),
            (self.trend is Trend.GROWS, self._growing()),
            (self.trend is Trend.FALLS, "the step was still getting quicker while it was timed"),
            (self.is_noisy, f"the windows differ by {units.percent(self.windows.spread, 0)}"),
            (len(self.windows.values) < self.windows_wanted, self._cut_short()),
        )
        return tuple(sentence for holds, sentence in said if holds)

    def _growing(self) -> str:
        return (
            f"each step takes {units.seconds(self.growth_s_per_step, 2)} longer than the one before: "
            "something grows (a cache, a list, a graph that is kept: undo it in Workload(reset=...)) or the device "
            "slows down"
        )

    def _cut_short(self) -> str:
        return f"only {len(self.windows.values)} of {self.windows_wanted} windows fit into the time"


@stepwise
def time_steps(clock: Clock, effort: StepEffort, *, progress: Progress | None = None) -> Steps[StepTimes]:
    """Times a step; what the step raises, ^C among it, passes through as it is."""
    stages = 3 if effort.single_steps else 2
    tell = progress or (lambda _number, _of, _name: None)
    tell(1, stages, "warming up")
    warm = yield from warm_up.passing(clock, effort)
    tell(2, stages, "step time")
    number = yield from window_steps.passing(clock, warm, effort)
    taken: list[float] = []
    yield from windows(clock, number, effort, taken)
    if not effort.single_steps:
        return StepTimes(warm, Sample(tuple(taken)), number, effort.windows)
    tell(3, stages, "single steps")
    singles = yield from _singles(clock, effort)
    return StepTimes(warm, Sample(tuple(taken)), number, effort.windows, singles)


@stepwise
def timed(clock: Clock, steps: int) -> Steps[float]:
    """Seconds that so many steps take back to back, from an idle device to an idle device."""
    return (yield from retried(lambda: _timed(clock, steps)))


def _timed(clock: Clock, steps: int) -> Steps[float]:
    clock.synchronize()
    start_s = clock.now_s()
    yield steps
    clock.synchronize()
    return clock.now_s() - start_s


@stepwise
def warm_up(clock: Clock, effort: StepEffort) -> Steps[WarmUp]:
    """Single steps until they are steady, or until steps or seconds run out.

    Then as many as there are must agree: of a step that takes seconds two are enough, for what warms up is small
    beside it.
    """
    taken = [(yield from timed.passing(clock, 1))]
    began_s = clock.now_s()
    while len(taken) < effort.warmup_steps and clock.now_s() - began_s < effort.warmup_s:
        taken.append((yield from timed.passing(clock, 1)))
        if len(taken) >= LOOK and agree(taken[-LOOK:]):
            return WarmUp(tuple(taken), is_steady=True)
    return WarmUp(tuple(taken), is_steady=agree(taken[1:][-LOOK:]))


def agree(step_s: Sequence[float]) -> bool:
    """These steps scatter little, and the later half of them is not quicker than the earlier."""
    if len(step_s) < 2:
        return False
    half = len(step_s) // 2
    falls = median(step_s[-half:]) < (1 - FALLING) * median(step_s[:half])
    return Sample(tuple(step_s)).spread <= AGREE and not falls


def sync_s(clock: Clock) -> float:
    """An empty synchronisation with the two readings around it, at its quickest."""
    return min(timed(lambda: None, clock, 0) for _ in range(LOOK))


def steps_per_window(step_s: float, sync_s: float, effort: StepEffort) -> int:
    """So many that a window is long against clock and synchronisation, as far as the budget goes; at least one."""
    if step_s <= 0:  # below what the clock can tell
        return effort.window_steps
    long_enough = math.ceil(max(effort.window_s, SYNCS_PER_WINDOW * sync_s) / step_s)
    affordable = int(effort.budget_s / (effort.windows * step_s))
    return max(1, min(affordable, max(effort.window_steps, long_enough)))


@stepwise
def window_steps(clock: Clock, warm: WarmUp, effort: StepEffort) -> Steps[int]:
    """A single step pays for its synchronisation and looks longer than it is; of short ones, a first window that
    does not count tells better.
    """
    empty_s = sync_s(clock)
    guess = steps_per_window(warm.settled_s, empty_s, effort)
    if guess <= effort.window_steps:
        return guess
    return steps_per_window((yield from timed.passing(clock, guess)) / guess, empty_s, effort)


def windows(clock: Clock, steps: int, effort: StepEffort, taken: list[float]) -> Steps[None]:
    """Adds seconds of a step, once per window, to those taken, so that they are not lost where no more steps come."""
    began_s = clock.now_s()
    while _wants_more(taken, clock.now_s() - began_s, effort):
        taken.append((yield from timed.passing(clock, steps)) / steps)


def _wants_more(taken: list[float], spent_s: float, effort: StepEffort) -> bool:
    """The least number always; then until there are enough and, asked after every so many, T is narrow; while the
    budget lasts.
    """
    if len(taken) < LEAST_WINDOWS:
        return True
    if spent_s >= effort.budget_s or len(taken) >= max(MOST_WINDOWS, effort.windows):
        return False
    if len(taken) % effort.windows:
        return True
    sample = Sample(tuple(taken))
    return sample.interval().width > NARROW * sample.median


def _singles(clock: Clock, effort: StepEffort) -> Steps[Sample]:
    began_s = clock.now_s()
    taken = [(yield from timed.passing(clock, 1))]
    while len(taken) < effort.single_steps and clock.now_s() - began_s < effort.budget_s:
        taken.append((yield from timed.passing(clock, 1)))
    return Sample(tuple(taken))


def trend(sample: Sample) -> Trend:
    """Mann and Kendall: of all pairs, how many more rise than fall, in standard deviations of chance.

    Ranks do not care how large an interruption was. Without trend the count has mean 0 and variance
    n(n−1)(2n+5)/18. A trend also has to be large enough to matter, to go on, and to stand out.
    """
    values, rise = sample.values, slope(sample)
    rises = sum(_sign(later - earlier) for earlier, later in combinations(values, 2))
    deviation = math.sqrt(len(values) * (len(values) - 1) * (2 * len(values) + 5) / 18)
    change = abs(rise) * (len(values) - 1)
    if abs(rises) <= TREND_Z * deviation or change <= TREND_RISE * sample.median:
        return Trend.FLAT
    if not _goes_on(values, rise) or change <= TREND_SCATTER * _scatter(values, rise):
        return Trend.FLAT
    return Trend.GROWS if rises > 0 else Trend.FALLS


def _goes_on(values: Sequence[float], rise: float) -> bool:
    half = len(values) // 2
    return all(slope(Sample(tuple(part))) / rise >= TREND_GOES_ON for part in (values[:half], values[-half:]))


def _scatter(values: Sequence[float], rise: float) -> float:
    """Median distance of the values from the line that rises so much from one to the next."""
    level = [value - rise * place for place, value in enumerate(values)]
    return median(abs(one - median(level)) for one in level)


def slope(sample: Sample) -> float:
    """Theil and Sen's: the median over all pairs of rise per place, so that no single window decides."""
    pairs = combinations(enumerate(sample.values), 2)
    rises = [(later - earlier) / (j - i) for (i, earlier), (j, later) in pairs]
    return median(rises) if rises else 0.0


def _sign(value: float) -> int:
    return (value > 0) - (value < 0)


def _unsteady(warm: WarmUp) -> str:
    steps = f"{len(warm.step_s)} step{'s' if len(warm.step_s) > 1 else ''}"
    return f"the step did not become steady within {steps} and {units.seconds(warm.total_s)}"
