"""A claim under test: what was claimed, what was measured, the checks that decide, and why it came out so. No torch."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

CLAIMED = {
    "c01": "matrix units do 15 times the vector rate (A100: 312 against 19.5 TFLOP/s)",
    "c02": "contractions are 99.8 % of BERT's FLOPs, normalization 0.17 %, elementwise 0.03 %",
    "c03": "contractions are 61 % of BERT's time, normalization 25.5 %, elementwise 13.5 %",
    "c04": "normalization reaches 250x and elementwise 700x fewer FLOP/s than contractions",
    "c05": "780 operations per loaded element fill the matrix units (A100: 400 G fp32 loads/s)",
    "c06": "the matrix units' ridge lies at 208 FLOP/B (A100)",
    "c07": "a unary fp32 op has 0.125 FLOP/B; its FLOP/s are tiny and cannot be tuned up",
    "c08": "a pointwise op needs about 100 operations per element to be compute-bound",
    "c09": "fused cos(cos(x)) costs about one cos, half of the unfused pair",
    "c10": "all activation functions cost about the same",
    "c11": "Python does 32 M additions/s, one is worth 10 M FLOPs of the device; PyTorch does 280 k small ops/s",
    "c12": "asynchronous execution hides overhead while the host stays ahead",
    "c13": "a step that a larger batch barely slows is overhead-bound; not so [B,D]x[D,D] with B < D",
    "c16": "fusion makes bandwidth-bound subgraphs 2 to 4 times faster and changes no result",
    "c17": "at half of peak or more a step is compute-bound, below it bandwidth- or overhead-bound",
    "c21": "small batches make matmuls bandwidth-bound",
    "c23": "each cast is a round trip through memory",
    "c25": "CUDA graphs and tracing remove per-op overhead",
}


class Verdict(StrEnum):
    HOLDS = "holds"
    IN_PART = "holds in part"
    FAILS = "does not hold here"
    UNTESTABLE = "not testable here"


@dataclass(frozen=True, slots=True)
class Check:
    """A measured number and the bounds within which it speaks for the claim."""

    what: str
    value: float | None
    """None where this machine cannot measure it."""
    low: float | None = None
    high: float | None = None

    @property
    def passes(self) -> bool | None:
        if self.value is None:
            return None
        return (self.low is None or self.value >= self.low) and (self.high is None or self.value <= self.high)


@dataclass(frozen=True, slots=True)
class Claim:
    id: str
    claimed: str
    measured: str | None
    verdict: Verdict
    why: str
    checks: tuple[Check, ...] = ()


def near(what: str, value: float | None, expected: float | None, factor: float) -> Check:
    """Within a factor of what is expected; unknown where either is."""
    if value is None or not expected:
        return Check(what, None)
    return Check(what, value, expected / factor, expected * factor)


def share(what: str, agreeing: Iterable[bool]) -> Check:
    """All must agree; of none nothing can be said."""
    cases = list(agreeing)
    return Check(what, sum(cases) / len(cases) if cases else None, low=1.0)


def verdict(checks: Iterable[Check]) -> Verdict:
    """Every check passes: it holds. None does: it does not. One cannot be made: the claim was not tested."""
    passes = [check.passes for check in checks]
    if not passes or None in passes:
        return Verdict.UNTESTABLE
    return Verdict.HOLDS if all(passes) else Verdict.IN_PART if any(passes) else Verdict.FAILS


def judged(claim_id: str, measured: str, checks: Iterable[Check], why: str) -> Claim:
    checks = tuple(checks)
    return Claim(claim_id, CLAIMED[claim_id], measured, verdict(checks), why, checks)


def untestable(claim_id: str, reason: str, measured: str | None = None) -> Claim:
    return Claim(claim_id, CLAIMED[claim_id], measured, Verdict.UNTESTABLE, reason)
