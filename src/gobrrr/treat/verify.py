"""Verification: the numbers of a treated step beside those of the step as it came, on inputs that it never saw.

The truth is observed once: for each of a few draws of inputs what eager does and what fp64 says. Where the step is
random on purpose, dropout is switched off for that; what is random still is compared by the means of several draws.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import repeat

from gobrrr.errors import CannotDecide
from gobrrr.treat.numerics import (
    ALLOWED,
    Check,
    Observation,
    agree,
    check,
    check_distribution,
    is_result,
    still_random,
)
from gobrrr.treat.observe import (
    Draw,
    Watched,
    changing,
    exact,
    gradients,
    observed,
    seen_now,
    shuffled_inputs,
    touched,
    whole,
)
from gobrrr.treat.stillness import without_dropout
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Numerics, Plan, graphless

INPUTS = tuple(Draw(inputs=seed, random=seed) for seed in (11, 23, 47))
OTHERWISE = replace(INPUTS[0], random=INPUTS[1].random)
"""The first again, with other random numbers."""
CHANCES = tuple(replace(INPUTS[0], random=seed) for seed in range(101, 109))
FEW = 8
"""Tensors that a step leaves changed, in which chance shows as well: many a step gives nothing back."""
SHAKES = range(1, 9)


@dataclass(frozen=True, slots=True)
class Truth:
    """Of the step as it came."""

    watched: Watched
    eager: tuple[Observation, ...]
    """One for each of INPUTS, without dropout."""
    exact: tuple[Observation, ...] | None
    """The same in fp64, or in fp32 where that is all that runs; None where neither is any wider."""
    chances: tuple[Observation, ...]
    """Results and a few tensors, one for each of CHANCES, as it is; empty where nothing is random."""
    before: Observation
    """What a step changes, as it is before."""
    repeats: bool
    """Without dropout the step does the same whatever the seed of its random numbers."""

    @property
    def shows(self) -> bool:
        """There is a number to compare: what is not finite is like anything, and of a random step only results tell.
        Where results are, and none of them is a number, what else there is tells nothing: a count of steps.
        """
        observed = list(self.eager[0].items() if self.repeats else self.chances[0].items())
        results = [one for name, one in observed if is_result(name)]
        telling = results or [one for _, one in observed if self.repeats]
        return any(bool(one.values.isfinite().any()) for one in telling)


def truth(subject: Subject) -> Truth:
    """Of the subject, untreated."""
    assert not subject.courses, "the truth is what was before any treatment"
    given, subject.inputs = subject.inputs, shuffled_inputs(subject, INPUTS)
    with without_dropout(subject) as has_dropout:
        watched = changing(subject, given)  # without: a layer that was left out would seem to be left alone
        eager = whole(subject, INPUTS, watched)
        wide = exact(subject, (*INPUTS, OTHERWISE), watched)
        repeats = agree(wide[0], wide.pop()) if wide else _repeats(subject, eager[0], watched)
    chances = observed(subject, CHANCES, _few(watched)) if has_dropout or not repeats else []
    found = Truth(
        watched=watched,
        eager=tuple(eager),
        exact=tuple(wide) if wide else None,
        chances=tuple(chances),
        before=seen_now(watched),
        repeats=repeats,
    )
    if not found.shows:
        raise CannotDecide(
            "nothing that the step gives back can be compared, so that nobody could tell a right treatment from a "
            "wrong one: return its output or its loss from it, and see that they are finite"
        )
    return found


def _few(watched: Watched) -> Watched:
    places = list(watched.places.items())
    return replace(watched, places=dict(places[:: max(1, len(places) // FEW)]))


def _repeats(subject: Subject, eager: Observation, watched: Watched) -> bool:
    """The same inputs with other random numbers give the same. In fp64 that is better seen: there a sum in another
    order, as kernels with atomic additions have it, cannot be taken for chance.
    """
    (otherwise,) = observed(subject, (OTHERWISE,), watched)
    return check(otherwise, eager, None, Numerics.SAME, None).passed


def verified(subject: Subject, known: Truth, doses: Plan, say: Callable[[str], None] = lambda _: None) -> Check:
    """The subject as it is treated now."""
    cls = max((dose.treatment.numerics for dose in doses), key=list(Numerics).index, default=Numerics.SAME)
    types = [dose.treatment.allow for dose in doses if dose.treatment.allow is not None]
    allowed = max(types, key=ALLOWED.__getitem__, default=None)
    checks = [] if not known.repeats else list(_exactly(subject, known, cls, allowed, say))
    if known.chances:
        chances = observed(subject, CHANCES, _few(known.watched))
        checks += [one(known.chances, chances, cls, allowed) for one in (still_random, check_distribution)]
    wrong = next((one for one in checks if not one.passed), None)
    return wrong or max(checks, key=lambda one: one.worst_error or 0.0)


def _exactly(
    subject: Subject, known: Truth, cls: Numerics, allowed: str | None, say: Callable[[str], None]
) -> Iterator[Check]:
    """Gradients below a graph, for what it captured keeps its own to itself; effects with it.

    Where one draw is off, it is asked what rounding alone would move there. One ReLU that is zero but for rounding, of
    millions, is turned over in one way of computing and not in the other, and takes with it a thousandth of a gradient.
    """
    with without_dropout(subject) as has_dropout:
        with subject.ended(keep=len(graphless(subject.plan))):
            made = gradients(subject, INPUTS)
        with _recaptured(subject, has_dropout):
            done = observed(subject, INPUTS, known.watched)
            more = touched(subject, known.watched)
        if more:
            reason = f"{more[0]}: is changed, and the step as it came leaves it alone"
            yield Check(cls.value, None, passed=False, worst=more[0], reason=reason)
            return
        wide = known.exact or repeat(None)
        for draw, eager, right, own, effects in zip(INPUTS, known.eager, wide, made, done, strict=False):
            judged = partial(check, eager, {**own, **effects}, right, cls, allowed, before=known.before)
            found = judged()
            if not found.passed and found.worst_error is not None and right is not None and allowed is None:
                say(f"  computing what rounding alone would move ({found.reason})")
                with subject.ended():
                    if _still_right(subject, draw, known.watched, right):
                        found = _but_for_rounding(judged, found, _shaken(subject, draw, known.watched))
            yield found
            if not found.passed:
                return


def _still_right(subject: Subject, draw: Draw, watched: Watched, right: Observation) -> bool:
    """Shakes begin where the step is now, which has to be where the truth began: else they excuse whatever moved it."""
    return any(agree(again, right) for again in exact(subject, (draw,), watched) or ())


def _but_for_rounding(
    judged: Callable[[list[Observation]], Check], found: Check, shaken: Iterable[Observation]
) -> Check:
    """Shaken as often as it takes: half of the times nothing is turned over."""
    so_far: list[Observation] = []
    for one in shaken:
        so_far.append(one)
        found = judged(so_far)
        if found.passed:
            break
    return found


def _shaken(subject: Subject, draw: Draw, watched: Watched) -> Iterator[Observation]:
    """What is right, from numbers that differ by rounding, of the step as it came."""
    for shake in SHAKES:
        yield from exact(subject, (draw,), watched, shake=shake) or ()


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
