"""Parts of an examination that need steps to pass, whoever makes them.

Such a part is a generator: `yield n` waits until n steps have passed, and whatever it has entered by then holds during
them. Who has a step to call calls it; under `gobrrr run` the script's own steps pass, once and in their own time.
"""

from collections.abc import Callable, Generator
from functools import update_wrapper
from typing import Generic, ParamSpec, TypeAlias, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

Steps: TypeAlias = Generator[int, None, T]


class Spoiled(Exception):
    """Thrown into a part: what it saw of a step is of no use, as where the step has another shape than the others."""

    def __init__(self, *, mid_step: bool = False) -> None:
        self.mid_step = mid_step
        """The step still goes on, as when the process forks in it."""


class Ended(Exception):
    """Thrown into a part that still waits: no step will come any more."""


class Stepwise(Generic[P, T]):
    """`part(step, …)` runs a part with a step that can be called; `part.passing(…)` waits for steps to pass."""

    def __init__(self, passing: Callable[P, Steps[T]]) -> None:
        self.passing = passing
        update_wrapper(self, passing)

    def __call__(self, step: Callable[[], object], *args: P.args, **kwargs: P.kwargs) -> T:
        part = self.passing(*args, **kwargs)
        try:
            while True:
                try:
                    number = next(part)
                except StopIteration as done:
                    return done.value  # type: ignore[no-any-return]
                for _ in range(number):
                    step()
        finally:
            part.close()


def stepwise(passing: Callable[P, Steps[T]]) -> Stepwise[P, T]:
    return Stepwise(passing)


def passed() -> Steps[None]:
    """One step, as it is."""
    yield 1


def retried(part: Callable[[], Steps[T]]) -> Steps[T]:
    """The part, from its beginning where a step begins, until no step of it is spoiled."""
    mid_step = False
    while True:
        try:
            if mid_step:
                yield 1
            return (yield from part())
        except Spoiled as spoiled:
            mid_step = spoiled.mid_step
