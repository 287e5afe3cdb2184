"""The knee of a curve that is flat at first and proportional later: t = max(t0, s·x)."""

import math
from collections.abc import Sequence
from statistics import fmean, pvariance


def knee(x: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Where the two segments meet, or None where the curve shows only one of them.

    In log-log axes the segments have the slopes 0 and 1. Every way to share the points out between them is tried, two
    at least or none to each; a segment lies at its points' mean, and the way with the least squared distance counts.
    """
    flat = [math.log(t) for t in seconds]
    rising = [math.log(t) - math.log(place) for place, t in zip(x, seconds, strict=True)]

    def distance(split: int) -> float:
        return sum(pvariance(part) * len(part) for part in (flat[:split], rising[split:]) if part)

    best = min((0, len(x), *range(2, len(x) - 1)), key=distance)
    if best in (0, len(x)):
        return None
    return math.exp(fmean(flat[:best]) - fmean(rising[best:]))
