"""How far predictions are off: 80 % of all measured times lie within these factors, by the class of the kernel.

Residuals of the public tables that benchmarks/predict.py scores; a step's interval joins those of its parts.
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
    """Elements in their order: memory alone decides."""
    SHUFFLED = "shuffled"
    """Rows are reduced, or elements leave their order."""
    HOST = "host"


class Spread(NamedTuple):
    """|log(measured / predicted)| that 80 % of long kernels stay below."""

    fitted: float
    """On accelerators whose tables constants were fitted to, all rows together."""
    unseen: float
    """On any other: with constants that were fitted without it, each accelerator counting the same
    (benchmarks/predict_left_out.py)."""


SPREAD = {
    Family.PRODUCT: Spread(0.10, 0.135),
    Family.SCALED_PRODUCT: Spread(0.27, 0.35),  # one accelerator's table: wider by as much as other products
    Family.ATTENTION: Spread(0.18, 0.25),
    Family.CONVOLUTION: Spread(0.33, 0.35),
    Family.STREAM: Spread(0.08, 0.08),
    Family.SHUFFLED: Spread(0.18, 0.285),
    Family.HOST: Spread(0.22, 0.22),
}
_STREAMED_ON = frozenset(("a100-sxm4-80gb", "a40", "a100-pcie-40gb", "v100-pcie-32gb", "p100-pcie-16gb"))
FITTED: dict[Family, frozenset[str]] = {
    Family.PRODUCT: frozenset(("a100-sxm4-80gb", "h100-sxm", "rtx-pro-6000-bw-server")),
    Family.SCALED_PRODUCT: frozenset(("h100-sxm",)),
    Family.ATTENTION: frozenset(("a100-sxm4-80gb", "h100-sxm")),
    Family.CONVOLUTION: frozenset(("v100-pcie-32gb", "p100-pcie-16gb")),
    Family.STREAM: _STREAMED_ON,
    Family.SHUFFLED: _STREAMED_ON,
    Family.HOST: frozenset(),
}
"""The accelerators whose tables decided a family's constants."""
_BLUR_S = 1e-6
"""By which short kernels vary besides: a library's choice, a start that is a little later."""

_AVERAGED = 0.5
"""Of a kernel's spread that is left over many of its family in one step: vision models on RTX 3090 and 4090."""
_SHARED = 0.13
"""Of a whole step, beyond its kernels: which kernels a library takes, what the software's version changes."""


def spread(family: Family, seconds: float, accelerator: str) -> float:
    """Of one kernel that is predicted to take so long."""
    return _long(family, accelerator) + _BLUR_S / seconds


def _long(family: Family, accelerator: str) -> float:
    return SPREAD[family].fitted if accelerator in FITTED[family] else SPREAD[family].unseen


class Interval(NamedTuple):
    low_s: float
    high_s: float


def interval(seconds: Mapping[Family, float], step_s: float, accelerator: str) -> Interval:
    """Errors of one family are alike in a step, so they add; those of different ones do not, so their squares do.

    A host is quick or slow for a whole step, and nothing averages: BERT-large's took 64 to 93 ms on hosts of one kind.
    """
    total = sum(seconds.values()) or 1.0
    left = {family: 1.0 if family is Family.HOST else _AVERAGED for family in seconds}
    variance = sum((left[family] * _long(family, accelerator) * part / total) ** 2 for family, part in seconds.items())
    factor = exp(sqrt(variance + _SHARED**2))
    return Interval(step_s / factor, step_s * factor)
