"""Gaps of the device: stretches of a step in which nothing ran, each with what it waited for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gobrrr.timing.kernel import Kernel

QUEUED, HOST = "launch_latency", "host"
"""What a gap is called where nobody saw what the host did: the next kernel had been asked for, or not yet."""


@dataclass(frozen=True, slots=True)
class DeviceGap:
    start_s: float
    seconds: float
    queued: bool
    """What ran next had already been asked for: the device's own doing, not the host's."""
    cause: str


def device_gaps(kernels: Sequence[Kernel], gap_before_s: float | None) -> Iterator[DeviceGap]:
    """In the order of time, from the one before the first kernel on, where that is known.

    Kernels of one launch are a graph's: all but the first were asked for with it, even if that call returned later.
    """
    ordered = sorted(kernels, key=lambda kernel: kernel.start_s)
    free_from_s = ordered[0].start_s - (gap_before_s or 0.0) if ordered else 0.0
    launches: set[float | None] = set()
    for kernel in ordered:
        queued = kernel.launched_s is None or kernel.launched_s <= free_from_s or kernel.launched_s in launches
        if kernel.start_s > free_from_s:
            cause = kernel.gap or (QUEUED if queued else HOST)
            yield DeviceGap(free_from_s, kernel.start_s - free_from_s, queued, cause)
        launches.add(kernel.launched_s)
        free_from_s = max(free_from_s, kernel.start_s + kernel.seconds)
