"""What ran on the device, and where the host waited for it: plain data, no torch."""

from dataclasses import dataclass
from enum import StrEnum


class KernelKind(StrEnum):
    COMPUTE = "compute"
    TRANSFER = "transfer"
    """Between host and device, by a copy engine."""
    COMMUNICATION = "communication"


@dataclass(frozen=True, slots=True)
class Kernel:
    """One thing that held the device for a while. On a CPU, one op's own time."""

    name: str
    start_s: float
    seconds: float
    kind: KernelKind
    stream: int
    launched_s: float | None
    """When the host finished asking for it; None where it was not seen, as inside a graph."""
    fused_from: tuple[int, ...] | None
    """Indices of the program's ops that it does; None if it could not be linked."""
    op: int | None = None
    """Index of the op that launched it, among those that ran."""
    gap: str | None = None
    """What the device waited for before it, for most of the time that it did; None if for nothing, or unknown."""


@dataclass(frozen=True, slots=True)
class Sync:
    """A call in which the host waited for the device."""

    call: str
    seconds: float
    source: str | None
