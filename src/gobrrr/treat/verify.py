"""Verification: the numbers of a treated step beside those of the step as it came, on inputs that it never saw.

The truth is observed once: for each of a few draws of inputs what eager does and what fp64 says. Where the step is
random on purpose, dropout is switched off for that; what is random still is compared by the means of several draws.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from gobrrr.errors import CannotDecide
from gobrrr.treat.numerics import Check, Observation, agree, check, check_distribution, is_result
from gobrrr.treat.observe import (
    Watched,
    changing,
    exact_observation,
    gradients,
    observed,
    shuffled_inputs,
    without_dropout,
)
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Numerics, Plan, graphless

SEEDS = (11, 23, 47)
SHAKES = (3, 5, 7, 13)
DRAWS = tuple(range(101, 109))


@dataclass(frozen=True, slots=True)
class Truth:
    """Of the step as it came."""

    watched: Watched
    eager: tuple[Observation, ...]
    """One for each of SEEDS, without dropout."""
    exact: tuple[Observation | None, ...]
    """The same in fp64."""
    draws: tuple[Observation, ...]
    """One for each of DRAWS, as it is; empty where nothing is random."""
    repeats: bool
    """Without dropout the step does the same whatever the seed of its random numbers."""

    @property
    def shows(self) -> bool:
        """There is a number to compare: what is not finite is like anything, and of a random step only results tell."""
        observed = self.eager[0].items() if self.repeats else self.draws[0].items()
        return any(bool(one.values.isfinite().any()) for name, one in observed if self.repeats or is_result(name))


def truth(subject: Subject) -> Truth:
    """Of the subject, untreated."""
    assert not subject.courses, "the truth is what was before any treatment"
    subject.inputs = shuffled_inputs(subject, SEEDS)
    watched = changing(subject)
    with without_dropout(subject) as has_dropout:
        eager = tuple(_whole(subject, seed, watched) for seed in SEEDS)
        exact = tuple(exact_observation(subject, seed, watched) for seed in SEEDS)
        repeats = _repeats(subject, eager[0], exact[0], watched)
    draws = _draws(subject) if has_dropout or not repeats else ()
    found = Truth(watched, eager, exact, draws, repeats)
    if not found.shows:
        raise CannotDecide(
            "nothing that the step gives back can be compared, so that nobody could tell a right treatment from a "
            "wrong one: return its output or its loss from it, and see that they are finite"
        )
    return found


def _whole(subject: Subject, seed: int, watched: Watched) -> Observation:
    return {**observed(subject, seed, watched), **gradients(subject, subject.step, seed)}


def _draws(subject: Subject) -> tuple[Observation, ...]:
    """Results alone, of the same inputs each time, so that only what is random on purpose differs."""
    return tuple(observed(subject, SEEDS[0], {}, random=seed) for seed in DRAWS)


def _repeats(subject: Subject, eager: Observation, exact: Observation | None, watched: Watched) -> bool:
    """The same inputs with other random numbers give the same: in fp64 where that runs, for there a sum in another
    order, as kernels with atomic additions have it, cannot be taken for chance.
    """
    if exact is not None:
        again = exact_observation(subject, SEEDS[0], watched, random=SEEDS[1])
        return again is not None and agree(exact, again)
    again = observed(subject, SEEDS[0], watched, random=SEEDS[1])
    return check(again, eager, None, Numerics.SAME, None).passed


def verified(subject: Subject, known: Truth, doses: Plan) -> Check:
    """The subject as it is treated now."""
    cls = max((dose.treatment.numerics for dose in doses), key=list(Numerics).index, default=Numerics.SAME)
    allowed = next((dose.treatment.allow for dose in reversed(doses) if dose.treatment.numerics is cls), None)
    checks = [] if not known.repeats else list(_exactly(subject, known, cls, allowed))
    if known.draws:
        draws = _draws(subject)
        checks += [check_distribution(known.draws, draws, cls), _still_random(known.draws, draws, cls)]
    wrong = next((one for one in checks if not one.passed), None)
    return wrong or max(checks, key=lambda one: one.worst_error or 0.0)


def _exactly(subject: Subject, known: Truth, cls: Numerics, allowed: str | None) -> Iterator[Check]:
    """Gradients below a graph, for what it captured keeps its own to itself; effects with it.

    Where one draw is off, it is asked what rounding alone would move there. One ReLU that is zero but for rounding, of
    millions, is turned over in one way of computing and not in the other, and takes with it a thousandth of a gradient.
    """
    with without_dropout(subject) as has_dropout:
        with subject.ended(keep=len(graphless(subject.plan))):
            made = [gradients(subject, subject.step, seed) for seed in SEEDS]
        with _recaptured(subject, has_dropout):
            done = [observed(subject, seed, known.watched) for seed in SEEDS]
        for seed, eager, exact, own, effects in zip(SEEDS, known.eager, known.exact, made, done, strict=True):
            found = check(eager, {**own, **effects}, exact, cls, allowed)
            if not found.passed and exact is not None and allowed is None:
                shaken = _shaken(subject, seed, known.watched)
                found = check(eager, {**own, **effects}, exact, cls, allowed, shaken)
            yield found


def _shaken(subject: Subject, seed: int, watched: Watched) -> list[Observation]:
    """What is right, from numbers that differ by rounding, of the step as it came."""
    with subject.ended():
        tried = [exact_observation(subject, seed, watched, shake=shake) for shake in SHAKES]
    return [one for one in tried if one is not None]


@contextmanager
def _recaptured(subject: Subject, needed: bool) -> Iterator[None]:  # noqa: FBT001 (a condition)
    """A graph has captured its dropout with all the rest: without it, it is another graph."""
    plan, keep = subject.plan, len(graphless(subject.plan))
    if not needed or keep == len(plan):
        yield
        return
    ended = subject.end(keep)
    try:
        subject.become(plan)
        yield
    finally:
        subject.end(keep)
        subject.resume(ended)


def _still_random(eager: Sequence[Observation], found: Sequence[Observation], cls: Numerics) -> Check:
    """What differed from draw to draw still does: a graph that replays one mask for ever would not."""
    for name in eager[0]:
        if is_result(name) and _differs(eager, name) and not _differs(found, name):
            return Check(cls.value, None, passed=False, worst=name, reason=f"{name}: the same for every seed")
    return Check(cls.value, None, passed=True, weak=True)


def _differs(draws: Sequence[Observation], name: str) -> bool:
    return any(not one[name].values.equal(draws[0][name].values) for one in draws)
