"""An Estimate: the predicted time of one kernel, and the times of its parts that overlap in it."""

from dataclasses import dataclass

from gobrrr.diagnose.floor import split
from gobrrr.diagnose.residency import Traffic
from gobrrr.predict.accelerator import Accelerator


@dataclass(frozen=True, slots=True)
class Estimate:
    seconds: float
    compute_s: float
    """What the arithmetic alone would take."""
    memory_s: float
    """What the bytes alone would take."""
    latency_s: float = 0.0
    """What such a kernel takes that has nothing to do."""

    def __add__(self, other: "Estimate") -> "Estimate":
        return Estimate(
            self.seconds + other.seconds,
            self.compute_s + other.compute_s,
            self.memory_s + other.memory_s,
            self.latency_s + other.latency_s,
        )

    def scaled(self, factor: float) -> "Estimate":
        return Estimate(self.seconds * factor, self.compute_s * factor, self.memory_s * factor, self.latency_s * factor)

    @property
    def working(self) -> float:
        """The share of it that belongs to its regime: all but latency, which is overhead, as an Exam has it."""
        if not self.seconds:
            return 1.0
        return 1 - split(self.seconds, max(self.compute_s, self.memory_s), self.latency_s).latency / self.seconds


NOTHING = Estimate(0.0, 0.0, 0.0)

LAUNCH_S = 0.45e-6
"""Before the first instruction, whatever the clock: fitted with the fill below on products of three cards."""

RESIDENT_SHARE = 0.5
"""Of the last-level cache that a kernel finds its operands in; see diagnose/residency.py for why half."""


def overlapped(compute_s: float, memory_s: float, sharpness: float) -> float:
    """Arithmetic and traffic at once: the longer one, and more where both are alike."""
    longest = max(compute_s, memory_s)
    if not longest:
        return 0.0
    summed: float = (compute_s / longest) ** sharpness + (memory_s / longest) ** sharpness
    return longest * float(summed ** (1 / sharpness))


def memory_time(traffic: Traffic, accelerator: Accelerator, efficiency: float) -> float:
    attained = 1.0 if accelerator.calibrated else efficiency
    return traffic.dram / (accelerator.dram_bytes_per_s * attained) + traffic.cache / accelerator.cache_bytes_per_s


def rotating(read: float, written: float, footprint: float, accelerator: Accelerator) -> Traffic:
    """A kernel that repeats over a footprint: all of it in the cache while that fits, none at twice as much."""
    cached = min(1.0, max(0.0, 2 - footprint / (RESIDENT_SHARE * accelerator.cache_bytes)))
    return Traffic(read * (1 - cached), written * (1 - cached), read * cached, written * cached)
