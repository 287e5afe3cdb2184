"""Outcomes: what was tried and what came of it, as plain data. What `treat --json` prints; no torch here."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from gobrrr import schema
from gobrrr.bounds import LEAST_RATIO, LEAST_S, MOST, MOST_RATIO, MOST_S, Bound, refuse_beyond
from gobrrr.treat.numerics import Check


@dataclass(frozen=True, slots=True)
class Kept:
    """Ratios are of the step before this treatment to the step with it."""

    treatment: str
    title: str
    sites: tuple[str, ...]
    predicted: float
    measured: float
    low: float
    high: float
    step_s: float
    numerics: Check
    compile_s: float
    """What it cost to compile, to capture, and to take the first step."""
    break_even_steps: float | None
    """After so many steps that cost is won back."""
    memory_bytes: int | None
    by_hand: str


@dataclass(frozen=True, slots=True)
class Rejected:
    treatment: str
    reason: str
    predicted: float
    measured: float | None
    low: float | None = None
    high: float | None = None
    step_s: float | None = None
    """With it, as measured."""


@dataclass(frozen=True, slots=True)
class NotTried:
    treatment: str
    bound: float | None
    reason: str


@dataclass(frozen=True, slots=True)
class Advice:
    """What costs time in the step as treated and only its author can change."""

    title: str
    code: str | None
    """Of the finding, for `gobrrr explain`; None where it is none."""
    seconds_at_stake: float | None
    evidence: tuple[str, ...]
    treatment: str


@dataclass(frozen=True, slots=True)
class PrescribedDose:
    treatment: str
    sites: tuple[str, ...]
    predicted: float | None = None
    """Its gain over what was in force before, as a ratio; and so as it was raced."""
    measured: float | None = None


@dataclass(frozen=True, slots=True)
class Prescription:
    """What to apply, to what, and where it was proven."""

    SCHEMA: ClassVar[str] = "prescription"
    VERSION: ClassVar[int] = 1

    target: str
    made_at: str
    torch: str
    device: str
    model: str
    """A fingerprint of the models' parameters: names, shapes and types."""
    doses: tuple[PrescribedDose, ...]
    predicted: float
    measured: float
    trains: bool | None = None
    """Whether the step did; None in files that are older than this."""
    models: int | None = None
    """How many with parameters the step had, and optimizers; None likewise."""
    optimizers: int | None = None
    code: str | None = None
    """A digest of what the models do when they are called; None likewise, or where it could not be read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Treated:
    """What `gobrrr treat` found."""

    SCHEMA: ClassVar[str] = "treat"
    VERSION: ClassVar[int] = 1

    target: str
    machine: str
    baseline_s: float
    treated_s: float
    treated_low_s: float | None = None
    treated_high_s: float | None = None
    """The 95 % interval of it; None in files that are older than these."""
    speedup: float
    speedup_low: float
    speedup_high: float
    predicted_speedup: float
    compulsory_floor_s: float | None
    """As this and the next: of the step in the precision that is kept; None where weights are quantized."""
    fused_floor_s: float | None
    memory_before_bytes: int | None
    memory_after_bytes: int | None
    spent_s: float
    kept: tuple[Kept, ...]
    rejected: tuple[Rejected, ...]
    not_tried: tuple[NotTried, ...]
    prescription: Prescription
    advice: tuple[Advice, ...] | None = ()
    """None where nobody knows: the step was not examined as treated."""
    warnings: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        """It is a file, and files come from strangers."""
        refuse_beyond("treatment", _bounds(self))


def prescription_in(path: Path) -> Prescription:
    """Of this file, which may hold all that was found."""
    kinds: list[type[Prescription | Treated]] = [Prescription, Treated]
    found = schema.read_one_of(kinds, path)
    return found.prescription if isinstance(found, Treated) else found


def _bounds(found: Treated) -> Iterator[Bound]:
    tried: tuple[Kept | Rejected, ...] = (*found.kept, *found.rejected)
    ours = (found.baseline_s, found.treated_s, found.treated_low_s, found.treated_high_s)
    times = [*ours, *(one.step_s for one in tried)]
    whole = (found.speedup, found.speedup_low, found.speedup_high, found.predicted_speedup)
    ratios = [*whole, *(ratio for one in tried for ratio in (one.predicted, one.measured, one.low, one.high))]
    spent = [found.spent_s, *(one.compile_s for one in found.kept)]
    memory = [found.memory_before_bytes, found.memory_after_bytes, *(one.memory_bytes for one in found.kept)]
    yield Bound("a step time", LEAST_S, MOST_S, times)
    yield Bound("a speed-up", LEAST_RATIO, MOST_RATIO, [*ratios, *(one.bound for one in found.not_tried)])
    yield Bound("a floor", 0, MOST_S, [found.fused_floor_s, found.compulsory_floor_s])
    yield Bound("a time that was spent", 0, MOST_S, spent)
    yield Bound("a number of steps", 0, MOST, [one.break_even_steps for one in found.kept])
    yield Bound("what is at stake", 0, MOST_S, [one.seconds_at_stake for one in found.advice or ()])
    yield Bound("a size in memory", -MOST, MOST, memory)  # what our own copies take is subtracted
