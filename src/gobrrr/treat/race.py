"""A race: is the treated step faster than the untreated one? Both in turn, so that a drift hits both alike."""

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.stats import Comparison, Interval, Sample, compare
from gobrrr.timing.clock import Clock
from gobrrr.timing.steady import StepEffort, timed, warm_up, window_steps
from gobrrr.work import compiler_events
from gobrrr.workload import Step

LEAST_BLOCKS, MOST_BLOCKS = 5, 25

NARROW = 0.01
"""Half of the interval's width at which a race is decided well enough to end."""

CLEAR = 0.1
"""Of the gain, or loss: known to that, a trial is decided too, if not well enough to be told."""

WORTH = 1.01
"""The low end of the interval has to exceed this for a treatment to be kept."""

HOPELESS = 2.0
"""Times as long as untreated, in every window: what also takes longer than a race should is timed no better."""

CONTROL = 0.01
"""How far the untreated step may lie from itself: a machine that cannot tell A from A by more cannot tell A from B."""


@dataclass(frozen=True, slots=True)
class Race:
    """Seconds of a step, block by block: untreated, treated, treated, untreated."""

    before_s: tuple[tuple[float, float], ...]
    after_s: tuple[tuple[float, float], ...]
    recompiles: tuple[str, ...] = ()
    """Which guards failed meanwhile, so that something was compiled again: not one step was timed, but several."""

    @property
    def comparison(self) -> Comparison:
        """With an interval that is wider by as much as the untreated step lies from itself."""
        found, apart = compare([sum(pair) for pair in self.before_s], [sum(pair) for pair in self.after_s]), self.apart
        return Comparison(found.speedup, Interval(found.interval.low / apart, found.interval.high * apart))

    @property
    def apart(self) -> float:
        """How many times as long as at one end of the blocks the untreated step takes at the other, at the least; 1
        where that is chance or does not matter.
        """
        control = compare([first for first, _ in self.before_s], [last for _, last in self.before_s]).interval
        apart = max(control.low, 1 / control.high)
        return apart if apart > 1 + CONTROL else 1.0

    @property
    def after(self) -> Sample:
        return Sample(tuple(seconds for pair in self.after_s for seconds in pair))

    @property
    def before(self) -> Sample:
        return Sample(tuple(seconds for pair in self.before_s for seconds in pair))

    @property
    def step_s(self) -> float:
        return self.after.median

    @property
    def is_won(self) -> bool:
        return self.comparison.interval.low > WORTH

    @property
    def is_open(self) -> bool:
        """Too noisy: what is not known to help may yet help by more than a little."""
        interval = self.comparison.interval
        return interval.low <= WORTH < interval.high and interval.width > 2 * NARROW


def race(
    step: Step,
    clock: Clock,
    effort: StepEffort,
    to_before: Callable[[], object],
    to_after: Callable[[], object],
    *,
    clear: float = 0.0,
) -> Race:
    """`step` runs as it is treated now: the treated one first, the other one last.

    Each has windows of as many steps as it needs itself: of a few quick ones the lag of the device is a good part.
    It ends when its interval is narrow, or when the gain is known to this share of itself.
    """
    steps_after = window_steps(step, clock, warm_up(step, clock, effort), effort)
    to_before()
    steps_before = window_steps(step, clock, warm_up(step, clock, effort), effort)
    before: list[tuple[float, float]] = []
    after: list[tuple[float, float]] = []
    began_s, warm = clock.now_s(), compiler_events.mark()
    while _goes_on(before, after, clock.now_s() - began_s, effort, clear):
        first = _window(step, clock, steps_before)
        to_after()
        treated = _window(step, clock, steps_after), _window(step, clock, steps_after)
        to_before()
        before.append((first, _window(step, clock, steps_before)))
        after.append(treated)
    meanwhile = compiler_events.since(warm)
    return Race(tuple(before), tuple(after), () if meanwhile is None else meanwhile.recompiles)


def _window(step: Step, clock: Clock, number: int) -> float:
    """One step goes ahead: caches and clocks are then this step's own."""
    step()
    return timed(step, clock, number) / number


def _goes_on(
    before: list[tuple[float, float]],
    after: list[tuple[float, float]],
    spent_s: float,
    effort: StepEffort,
    clear: float,
) -> bool:
    if before and spent_s >= effort.budget_s and min(map(min, after)) > HOPELESS * max(map(max, before)):
        return False
    if len(before) < LEAST_BLOCKS:
        return True
    if len(before) >= MOST_BLOCKS or spent_s >= 2 * effort.budget_s:
        return False
    run = Race(tuple(before), tuple(after))
    speedup, interval = run.comparison.speedup, run.comparison.interval
    return interval.width > 2 * max(NARROW * speedup, clear * abs(speedup - 1))
