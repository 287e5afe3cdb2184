import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import stats as scipy_stats

from gobrrr.stats import NOISY_SPREAD, RESAMPLES, Comparison, Interval, Sample, Verdict, compare

TIMES_S = st.floats(1e-6, 1e3)
PAIRS_S = st.lists(st.tuples(TIMES_S, TIMES_S), min_size=1, max_size=12)
# Each example of a bootstrap law resamples 2000 times.
few_examples = settings(max_examples=25)


def skewed_times(rng: np.random.Generator, size: int) -> tuple[float, ...]:
    """As timings are: a floor that nothing undercuts and a tail that interference draws out."""
    return tuple((1 + rng.exponential(0.05, size)).tolist())


def unpaired_interval(before_s: tuple[float, ...], after_s: tuple[float, ...]) -> Interval:
    """What one would get from the two medians without their pairing."""
    result = scipy_stats.bootstrap(
        (np.array(before_s), np.array(after_s)),
        lambda before, after, axis: np.median(before, axis=axis) / np.median(after, axis=axis),
        method="percentile",
        rng=np.random.default_rng(1),
        n_resamples=2000,
    )
    return Interval(*map(float, result.confidence_interval))


@given(st.lists(TIMES_S, min_size=1))
def test_the_median_is_that_of_numpy(values):
    assert Sample(tuple(values)).median == pytest.approx(np.median(values))


@given(st.lists(TIMES_S, min_size=1))
@example([0.7])
def test_the_spread_is_numpys_interquartile_range_over_the_median(values):
    first, middle, third = np.quantile(values, [0.25, 0.5, 0.75])
    assert Sample(tuple(values)).spread == pytest.approx((third - first) / middle)


@pytest.mark.parametrize(("width", "is_noisy"), [(0.9, False), (1.1, True)])
def test_a_sample_is_noisy_above_the_documented_spread(width, is_noisy):
    half = width * NOISY_SPREAD / 2
    assert Sample((1 - half, 1 - half, 1.0, 1 + half, 1 + half)).is_noisy is is_noisy


@pytest.mark.parametrize("size", [11, 12, 40])
@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_interval_is_that_of_scipy(size, confidence):
    """Up to the chance in which resamples were drawn, and no further.

    The share of all possible resamples that lies below our lower end is binomial: (1 - confidence) / 2 with
    a standard deviation of sqrt(p (1 - p) / RESAMPLES), 0.35 points at 95 %. So our interval lies between
    the two intervals that scipy gives three of those to either side.
    """
    values = np.array(skewed_times(np.random.default_rng(size), size))
    tail = (1 - confidence) / 2
    three_sigma = 3 * np.sqrt(tail * (1 - tail) / RESAMPLES)

    def scipy_interval(confidence_level: float) -> tuple[float, float]:
        result = scipy_stats.bootstrap(
            (values,),
            np.median,
            confidence_level=confidence_level,
            n_resamples=50_000,
            method="percentile",
            rng=np.random.default_rng(2),
        )
        return result.confidence_interval

    wide_low, wide_high = scipy_interval(confidence + 2 * three_sigma)
    narrow_low, narrow_high = scipy_interval(confidence - 2 * three_sigma)
    ours = Sample(tuple(values.tolist())).interval(confidence)
    assert wide_low <= ours.low <= narrow_low
    assert narrow_high <= ours.high <= wide_high


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    """Of 200 samples from a known distribution, 95 % give or take three binomial standard deviations."""
    rng = np.random.default_rng(3)
    true_median = 1 + 0.05 * np.log(2)
    held = [true_median in Sample(skewed_times(rng, 15)).interval() for _ in range(200)]
    assert np.mean(held) == pytest.approx(0.95, abs=3 * np.sqrt(0.95 * 0.05 / 200))


@few_examples
@given(st.lists(TIMES_S, min_size=1, max_size=20))
def test_the_interval_contains_the_median_and_stays_within_the_sample(values):
    sample = Sample(tuple(values))
    interval = sample.interval()
    assert sample.median in interval
    assert min(values) <= interval.low
    assert interval.high <= max(values)


@few_examples
@given(st.lists(TIMES_S, min_size=1, max_size=20))
def test_one_sample_always_gives_one_interval(values):
    assert Sample(tuple(values)).interval() == Sample(tuple(values)).interval()


def test_a_wider_confidence_gives_a_wider_interval():
    sample = Sample(skewed_times(np.random.default_rng(4), 20))
    narrow, wide = sample.interval(0.5), sample.interval(0.99)
    assert wide.low < narrow.low < narrow.high < wide.high


def test_a_paired_ratio_cancels_the_drift_that_hides_a_difference_from_an_unpaired_one():
    rng = np.random.default_rng(5)
    drift = np.linspace(1, 2, 20)  # the clock falls by half while we measure
    before = tuple((drift * 1.05 * (1 + rng.normal(0, 0.002, 20))).tolist())
    after = tuple((drift * (1 + rng.normal(0, 0.002, 20))).tolist())
    paired = compare(before, after)
    assert paired.verdict() is Verdict.FASTER
    assert 1.05 in paired.interval
    assert paired.interval.width < 0.01
    assert 1 in unpaired_interval(before, after)


@few_examples
@given(PAIRS_S, st.floats(1e-3, 1e3))
def test_scaling_both_sides_leaves_the_speedup(pairs, scale):
    before, after = zip(*pairs, strict=True)
    scaled = compare([scale * s for s in before], [scale * s for s in after])
    plain = compare(before, after)
    assert scaled.speedup == pytest.approx(plain.speedup)
    assert (scaled.interval.low, scaled.interval.high) == pytest.approx((plain.interval.low, plain.interval.high))


@few_examples
@given(PAIRS_S)
@example([(1.0, 2.0), (2.0, 1.0)])
def test_swapping_the_sides_inverts_the_speedup_and_its_interval(pairs):
    before, after = zip(*pairs, strict=True)
    forth, back = compare(before, after), compare(after, before)
    assert back.speedup == pytest.approx(1 / forth.speedup)
    assert (back.interval.low, back.interval.high) == pytest.approx((1 / forth.interval.high, 1 / forth.interval.low))


@few_examples
@given(PAIRS_S)
def test_the_interval_of_a_comparison_contains_its_speedup(pairs):
    comparison = compare(*zip(*pairs, strict=True))
    assert comparison.speedup in comparison.interval


@few_examples
@given(st.lists(TIMES_S, min_size=1, max_size=12))
def test_a_thing_compared_with_itself_is_the_same(times_s):
    comparison = compare(times_s, times_s)
    assert comparison.speedup == 1
    assert comparison.verdict() is Verdict.SAME


@pytest.mark.parametrize(
    ("ratio", "noise", "verdict"),
    [
        (2, 0.01, Verdict.FASTER),
        (0.5, 0.01, Verdict.SLOWER),
        (1, 0.01, Verdict.SAME),
        (1, 0.5, Verdict.NOISY),
        (1.05, 0.5, Verdict.NOISY),
    ],
)
def test_the_verdict_is_right_as_often_as_its_interval_promises(ratio, noise, verdict):
    """A 95 % interval leaves the truth out once in twenty; of 40 trials, six is three standard deviations."""
    rng = np.random.default_rng(6)

    def one_verdict() -> Verdict:
        before_s, after_s = np.exp(rng.normal(0, noise, (2, 15)))
        return compare((ratio * before_s).tolist(), after_s.tolist()).verdict()

    assert sum(one_verdict() is not verdict for _ in range(40)) <= 6


@pytest.mark.parametrize(
    ("low", "high", "resolution", "verdict"),
    [
        (1.001, 1.2, 0.02, Verdict.FASTER),
        (0.8, 0.999, 0.02, Verdict.SLOWER),
        (0.99, 1.01, 0.02, Verdict.SAME),
        (0.95, 1.05, 0.02, Verdict.NOISY),
        (0.95, 1.05, 0.10, Verdict.SAME),
        (1.0, 1.3, 0.02, Verdict.NOISY),
    ],
)
def test_only_an_interval_that_leaves_one_out_decides(low, high, resolution, verdict):
    assert Comparison(1.0, Interval(low, high)).verdict(resolution) is verdict


@pytest.mark.parametrize("broken", [lambda: Sample(()), lambda: compare([], []), lambda: compare([1], [1, 2])])
def test_measurements_that_cannot_be_compared_are_our_own_mistake(broken):
    with pytest.raises(AssertionError):
        broken()
