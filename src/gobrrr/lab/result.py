"""What the lab found, as plain data: points, claims, and how to look at them. No torch."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from gobrrr.bounds import MOST, MOST_S, Bound, refuse_beyond
from gobrrr.lab.claim import Claim

Unit = Literal["s", "FLOP/s", "B/s", "B", "FLOP/B", "%", "", "text"]


@dataclass(frozen=True, slots=True)
class Column:
    """A field of the points, and how to read it."""

    field: str
    title: str
    unit: Unit = "text"


@dataclass(frozen=True, slots=True)
class Drawing:
    """How one would rather look at the points than read them: a curve over two logarithmic axes, or bars."""

    kind: Literal["curve", "bars"]
    title: str
    x: Column
    """Along the axis of a curve; the label of a bar."""
    y: Column
    beside: tuple[Column, ...] = ()
    """Further columns of a bar's row."""
    marks: Mapping[str, float] | None = None
    """Places on a curve's axis that have a name."""
    only: Mapping[str, str] | None = None
    """Fields and values of the points that it shows; without it all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    name: str
    question: str
    claims: tuple[Claim, ...]
    points: tuple[Mapping[str, Any], ...] = ()
    drawings: tuple[Drawing, ...] = ()
    seconds: float | None = None
    """What the experiment took."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """What `gobrrr lab --json` prints."""

    SCHEMA: ClassVar[str] = "lab"
    VERSION: ClassVar[int] = 1

    device: str
    torch: str | None
    threads: int
    made_at: str
    """ISO 8601, UTC."""
    experiments: tuple[Result, ...]
    doubts: tuple[str, ...] = ()
    """What was wrong with the machine meanwhile."""

    def __post_init__(self) -> None:
        """It is a file, and files come from strangers."""
        refuse_beyond("lab", _bounds(self))


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _bounds(lab: Lab) -> Iterator[Bound]:
    values = (value for result in lab.experiments for point in result.points for value in point.values())
    drawings = (drawing for result in lab.experiments for drawing in result.drawings)
    yield Bound("a number of a point", -MOST, MOST, filter(is_number, values))
    yield Bound("a marked place", -MOST, MOST, (place for one in drawings for place in (one.marks or {}).values()))
    yield Bound("what an experiment took", 0, MOST_S, (result.seconds for result in lab.experiments))
