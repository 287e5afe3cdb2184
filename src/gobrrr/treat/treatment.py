"""A Treatment: one change of a step that can be applied, verified and undone; and the registry of all there are."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from textwrap import dedent
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from gobrrr.treat.edit import Edit

if TYPE_CHECKING:
    from gobrrr.treat.chart import Chart
    from gobrrr.treat.subject import Subject


class Numerics(StrEnum):
    """What a treatment does to numbers: the same, in another order, unless it was allowed more."""

    SAME = "same math, reordered"
    LOWER = "lower precision"
    QUANTIZED = "quantized"


class Stage(IntEnum):
    """The order in which treatments are applied: each sees those before it in force.

    What changes the program comes before what compiles it, and a captured graph holds all of it.
    """

    HOST = 0
    PRECISION = 1
    STRUCTURE = 2
    LAYOUT = 3
    OPTIMIZER = 4
    FUSION = 5
    GRAPH = 6


class Unfit(Exception):
    """This treatment is not for this step; the sentence says why."""


class NotYet(Unfit):
    """It may be, once another one is in force."""


@dataclass(frozen=True, slots=True)
class Forecast:
    """How many times faster the step would be."""

    speedup: float
    low: float
    high: float
    """Nothing makes it more: if even this is too little, nothing is tried."""


class Kind(Protocol):
    """What a file of `treatments/` writes down."""

    def sites(self, chart: "Chart") -> tuple[str, ...]:
        """Where it would change something; Unfit where it cannot."""

    def forecast(self, chart: "Chart", sites: tuple[str, ...]) -> Forecast:
        """From the Exam, and from what can be measured in milliseconds."""

    def edits(self, subject: "Subject", sites: tuple[str, ...]) -> Iterable[Edit]:
        """What it changes, each edit in force before the next is made."""


Fills: TypeAlias = "Callable[[Subject, tuple[str, ...]], Mapping[str, str]]"
"""From a subject and the sites of one owner, a model or an optimizer, to what stands for `$words` in `by_hand`."""


def no_words(_subject: "Subject", _sites: tuple[str, ...]) -> dict[str, str]:
    return {}


@dataclass(frozen=True, slots=True)
class Treatment:
    name: str
    title: str
    numerics: Numerics
    stage: Stage
    allow: str | None
    """The word that allows it: a type of numbers, or None where it is always allowed."""
    group: str | None
    """Of one group one treatment is in force at most."""
    risky: bool
    """May leave the process unusable: rehearsed in another one first."""
    compiles: bool
    """Its first steps take seconds to minutes."""
    inference: bool
    """Computes with numbers made of the parameters when it was applied: not for what trains."""
    instead_of: str | None
    """The one that does more, where it can: as long as that one is open, this one waits."""
    moves: bool
    """Lays parameters elsewhere, and what an optimizer keeps of them: whoever trains has to show it."""
    by_hand: str
    """The same as code, with `$words` that `by_hand.written_out` fills in."""
    kind: Kind
    fills: Fills = no_words

    def edits(self, subject: "Subject", sites: tuple[str, ...]) -> Iterable[Edit]:
        return self.kind.edits(subject, sites)


@dataclass(frozen=True, slots=True)
class Dose:
    """A treatment at certain places."""

    treatment: Treatment
    sites: tuple[str, ...]


Plan: TypeAlias = tuple[Dose, ...]
"""In the order of their stages."""


def graphless(plan: Plan) -> Plan:
    """What a graph would capture: it stands at the end."""
    return tuple(dose for dose in plan if dose.treatment.stage is not Stage.GRAPH)


TREATMENTS: dict[str, Treatment] = {}

K = TypeVar("K", bound=type[Kind])


def treatment(
    name: str,
    title: str,
    *,
    stage: Stage,
    by_hand: str,
    fills: Fills = no_words,
    numerics: Numerics = Numerics.SAME,
    allow: str | None = None,
    group: str | None = None,
    risky: bool = False,
    compiles: bool = False,
    inference: bool = False,
    instead_of: str | None = None,
    moves: bool = False,
) -> Callable[[K], K]:
    """Registers the decorated class."""

    def register(kind: K) -> K:
        assert name not in TREATMENTS, f"{name} is taken"
        assert (allow is None) == (numerics is Numerics.SAME), "what changes numbers has to be allowed"
        code = dedent(by_hand).strip()
        tags = allow, group, risky, compiles, inference, instead_of, moves
        TREATMENTS[name] = Treatment(name, title, numerics, stage, *tags, code, kind(), fills)
        return kind

    return register
