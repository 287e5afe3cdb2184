"""Medians, their doubt, and the question "is B faster".

Timings are skewed: interference only ever adds. So the centre is the median, the spread is the
interquartile range over the median, and intervals come from the bootstrap, which assumes no shape.
"""

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from statistics import median, quantiles

RESAMPLES = 2000
"""Enough that the ends of a 95 % interval move by less than the interval's own width over 20."""

NOISY_SPREAD = 0.10
"""An interquartile range above a tenth of the median: differences below that cannot be told apart."""


@dataclass(frozen=True, slots=True)
class Interval:
    low: float
    high: float

    def __contains__(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def width(self) -> float:
        return self.high - self.low


@dataclass(frozen=True, slots=True)
class Sample:
    """Repeated measurements of one thing. The raw values are kept; everything else is derived."""

    values: tuple[float, ...]

    def __post_init__(self) -> None:
        assert self.values, "a sample holds at least one value"

    @property
    def median(self) -> float:
        return median(self.values)

    @property
    def spread(self) -> float:
        """Interquartile range over the median: 0.02 reads as ± 1 %."""
        if len(self.values) < 2 or self.median == 0:
            return 0.0
        first, _, third = quantiles(self.values, n=4, method="inclusive")
        return (third - first) / abs(self.median)

    @property
    def is_noisy(self) -> bool:
        return self.spread > NOISY_SPREAD

    def interval(self, confidence: float = 0.95) -> Interval:
        """Of the median, by the percentile bootstrap."""
        return _bootstrap(len(self.values), lambda pick: median(self.values[i] for i in pick), confidence)


class Verdict(StrEnum):
    FASTER = "faster"
    SLOWER = "slower"
    SAME = "no difference beyond noise"
    NOISY = "too noisy to tell"


@dataclass(frozen=True, slots=True)
class Comparison:
    """How many times faster the second is than the first, from interleaved pairs."""

    speedup: float
    interval: Interval

    def verdict(self, resolution: float = 0.02) -> Verdict:
        """Faster or slower if the interval leaves 1 out, the same if it is narrow around 1, else undecided.

        `resolution` is the difference one cares for: an interval wider than it that still holds 1 may hide
        a difference that matters, and then the honest answer is that nobody knows.
        """
        if self.interval.low > 1:
            return Verdict.FASTER
        if self.interval.high < 1:
            return Verdict.SLOWER
        return Verdict.SAME if self.interval.width <= 2 * resolution else Verdict.NOISY


def compare(before_s: Sequence[float], after_s: Sequence[float], confidence: float = 0.95) -> Comparison:
    """The paired ratio before/after: pairs measured next to each other share the machine's mood.

    Resampling keeps each pair together: drift that hits both sides cancels instead of widening the interval.
    """
    assert len(before_s) == len(after_s), "a paired ratio needs as many measurements of each side"
    assert before_s, "a comparison needs at least one pair"
    ratios = [before / after for before, after in zip(before_s, after_s, strict=True)]
    interval = _bootstrap(len(ratios), lambda pick: _middle_ratio([ratios[i] for i in pick]), confidence)
    return Comparison(_middle_ratio(ratios), interval)


def _middle_ratio(ratios: Sequence[float]) -> float:
    """The median, with the geometric mean of the middle two: 2x once and 0.5x once is 1x, either way round."""
    ordered = sorted(ratios)
    return math.sqrt(ordered[(len(ordered) - 1) // 2] * ordered[len(ordered) // 2])


def _bootstrap(size: int, statistic: Callable[[Sequence[int]], float], confidence: float) -> Interval:
    """Percentile interval over resampled indices; seeded, so that one sample always gives one interval."""
    generator = random.Random(0)
    resampled = sorted(statistic(generator.choices(range(size), k=size)) for _ in range(RESAMPLES))
    below = int((1 - confidence) / 2 * RESAMPLES)
    return Interval(resampled[below], resampled[-1 - below])
