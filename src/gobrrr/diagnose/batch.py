"""The batch test's verdict: what it means that twice the batch takes so many times as long.

A part of the step's time that grows with the batch doubles, the rest stays: T(2B) / T(B) = 2 − rest, so the rest is
read off the ratio. If a larger batch barely changes the step, something other than the samples fills it, which is what
overhead does. The footnote: a product of [B, D] and [D, D] with B < D moves mostly weights, and those are read once
however large the batch is. More samples then raise its intensity at no cost in bytes, and a step that reads weights all
the time stays flat while memory limits it. So the bytes are counted for both batches too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from gobrrr import units
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import BatchTest, Exam
from gobrrr.stats import Comparison, Interval, compare
from gobrrr.work.program import Program
from gobrrr.work.signature import known_work

FLAT = 1.25
"""A ratio below: at most a quarter of the step grows with the batch."""

GROWN = 1.75
"""A ratio above: at least three quarters of it do."""

UNSURE = GROWN - FLAT
"""An interval as wide as from one to the other tells neither."""


class BatchCall(StrEnum):
    OVERHEAD = "overhead"
    BANDWIDTH = "bandwidth"
    WORK = "work"
    PARTLY = "partly"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class BatchVerdict:
    """What `--batch-test` found, as `batch_test` of the Diagnosis."""

    ratio: float
    """T(2B) / T(B)."""
    ratio_low: float
    ratio_high: float
    bytes_ratio: float | None
    """The same of the bytes that the step must move."""
    verdict: BatchCall
    explanation: str


def batch_verdict(exam: Exam, shares: Mapping[str, float] | None) -> BatchVerdict | None:
    """From the times of both, the bytes of both, and where the time of the plain step goes."""
    test = exam.batch_test
    if test is None or not test.pairs_s:
        return None
    found = compare([twice_s for _, twice_s in test.pairs_s], [step_s for step_s, _ in test.pairs_s])
    bytes_ratio = _bytes_ratio(test, exam.program)
    call = called(found.speedup, found.interval, bytes_ratio, shares)
    return BatchVerdict(
        ratio=found.speedup,
        ratio_low=found.interval.low,
        ratio_high=found.interval.high,
        bytes_ratio=bytes_ratio,
        verdict=call,
        explanation=_explained(call, found, bytes_ratio),
    )


def _bytes_ratio(test: BatchTest, program: Program | None) -> float | None:
    step_bytes = None if program is None else known_work(program).bytes
    return test.doubled_bytes / step_bytes if step_bytes and test.doubled_bytes is not None else None


def called(
    ratio: float, interval: Interval, bytes_ratio: float | None, shares: Mapping[str, float] | None
) -> BatchCall:
    if interval.width >= UNSURE:
        return BatchCall.UNDECIDED
    if ratio >= GROWN:
        return BatchCall.WORK
    if ratio > FLAT:
        return BatchCall.PARTLY
    if bytes_ratio is not None and bytes_ratio > FLAT:
        return BatchCall.OVERHEAD
    return _flat_with_its_bytes(shares)


def _flat_with_its_bytes(shares: Mapping[str, float] | None) -> BatchCall:
    """The footnote's case: time and bytes are both flat, and only where the time goes can tell them apart."""
    if shares is None:
        return BatchCall.UNDECIDED
    return BatchCall.BANDWIDTH if shares[Regime.BANDWIDTH] > shares[Regime.OVERHEAD] else BatchCall.OVERHEAD


def _explained(call: BatchCall, found: Comparison, bytes_ratio: float | None) -> str:
    rest = units.percent(2 - found.speedup, 0)
    weights = "the bytes barely grow either, for most are weights that are read once whatever the batch"
    flat_bytes = bytes_ratio is not None and bytes_ratio <= FLAT
    return {
        BatchCall.OVERHEAD: "a larger batch costs almost nothing: overhead-bound"
        + (f" ({weights}; but they do not fill the step)" if flat_bytes else ""),
        BatchCall.BANDWIDTH: f"bandwidth, not overhead: {weights}; a larger batch is almost free",
        BatchCall.WORK: "the step grows with the batch: the work limits it, not overhead",
        BatchCall.PARTLY: f"about {rest} of the step does not depend on the batch: overhead, or weights that are read "
        "and updated once a step",
        BatchCall.UNDECIDED: "too noisy to tell"
        if found.interval.width >= UNSURE
        else f"overhead or bandwidth: {weights}, and where the time goes is unknown",
    }[call]
