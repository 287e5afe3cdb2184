"""The experiments by name, filled by a decorator: what each asks, and which claims it tests."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr.lab.claim import Claim
from gobrrr.lab.result import Drawing
from gobrrr.lab.site import Site


@dataclass(frozen=True, slots=True)
class Found:
    """What an experiment gives back."""

    points: Sequence[Any]
    claims: tuple[Claim, ...]
    drawings: tuple[Drawing, ...]


@dataclass(frozen=True, slots=True)
class Experiment:
    name: str
    question: str
    claims: tuple[str, ...]
    run: Callable[[Site], Found]


EXPERIMENTS: dict[str, Experiment] = {}


def experiment(question: str, *claims: str) -> Callable[[Callable[[Site], Found]], Callable[[Site], Found]]:
    """Registers a function under its own name."""

    def registered(function: Callable[[Site], Found]) -> Callable[[Site], Found]:
        EXPERIMENTS[function.__name__] = Experiment(function.__name__, question, claims, function)
        return function

    return registered
