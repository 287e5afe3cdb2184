"""The clock that a step is timed by: the host's, read when the device has nothing left to do."""

from dataclasses import dataclass
from time import perf_counter
from typing import Protocol


class Clock(Protocol):
    """What timing asks of the world, and all of it: with a fake one the arithmetic of timing is exact."""

    def now_s(self) -> float:
        """Seconds since some fixed moment; never goes back."""

    def synchronize(self) -> None:
        """Returns when the device has finished everything that was enqueued."""


@dataclass(frozen=True, slots=True)
class DeviceClock:
    """The real one. Where the host itself computes there is nothing to wait for."""

    device: str
    """As torch spells it: `cpu`, `cuda:0`."""

    def now_s(self) -> float:
        return perf_counter()

    def synchronize(self) -> None:
        if self.device != "cpu":
            import torch

            torch.accelerator.synchronize(self.device)
