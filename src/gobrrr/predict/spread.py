"""How far predictions are off: 80 % of all measured times lie within these factors, by the class of the kernel.

Residuals of the public tables that benchmarks/predict.py scores, over all accelerators together; a step's interval
joins those of its parts.
"""

from collections.abc import Mapping
from enum import StrEnum
from math import exp, sqrt
from typing import NamedTuple


class Family(StrEnum):
    PRODUCT = "product"
    SCALED_PRODUCT = "scaled product"
    ATTENTION = "attention"
    CONVOLUTION = "convolution"
    STREAM = "stream"
    HOST = "host"


SPREAD = {
    Family.PRODUCT: 0.13,
    Family.SCALED_PRODUCT: 0.27,
    Family.ATTENTION: 0.22,
    Family.CONVOLUTION: 0.33,
    Family.STREAM: 0.21,
    Family.HOST: 0.25,
}
"""|log(measured / predicted)| that 80 % of long kernels stay below."""
_BLUR_S = 1e-6
"""By which short kernels vary besides: a library's choice, a start that is a little later."""

_AVERAGED = 0.5
"""Of a kernel's spread that is left over many of its family in one step: vision models on RTX 3090 and 4090."""
_SHARED = 0.13
"""Of a whole step, beyond its kernels: which kernels a library takes, what the software's version changes."""


def spread(family: Family, seconds: float) -> float:
    """Of one kernel that is predicted to take so long."""
    return SPREAD[family] + _BLUR_S / seconds


class Interval(NamedTuple):
    low_s: float
    high_s: float


def interval(seconds: Mapping[Family, float], step_s: float) -> Interval:
    """Errors of one family are alike in a step, so they add; those of different ones do not, so their squares do."""
    total = sum(seconds.values()) or 1.0
    variance = sum((_AVERAGED * SPREAD[family] * part / total) ** 2 for family, part in seconds.items())
    factor = exp(sqrt(variance + _SHARED**2))
    return Interval(step_s / factor, step_s * factor)
