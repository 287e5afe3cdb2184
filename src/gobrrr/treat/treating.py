"""Treating: from a workload to what helped it. The user's objects are afterwards as they were."""

import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from math import prod
from typing import Any

from gobrrr.dtypes import MATRIX_MODES
from gobrrr.errors import UsageError
from gobrrr.exam import Exam
from gobrrr.examination import examine, needed_probes
from gobrrr.machine import Ceilings, identify, measured
from gobrrr.stats import Comparison, Interval, Sample
from gobrrr.timing.clock import Clock, DeviceClock
from gobrrr.timing.state import preserved
from gobrrr.timing.state.undo import interrupts_deferred
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, StepEffort
from gobrrr.treat.advice import advised
from gobrrr.treat.by_hand import written_out
from gobrrr.treat.chart import Chart
from gobrrr.treat.code import digest_of
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.floors import Floors
from gobrrr.treat.memory import has_room_for_two, peak_bytes
from gobrrr.treat.outcome import Advice, Kept, NotTried, Prescription, Rejected, Treated
from gobrrr.treat.prescription import fingerprint_of, prescribed
from gobrrr.treat.rehearsal import rehearsals
from gobrrr.treat.search import Attempt, Search
from gobrrr.treat.subject import Subject, Turn, is_bare, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Plan
from gobrrr.treat.trial import RIVAL_FASTER, Bench, Say, compiled_meanwhile, raced, said_by
from gobrrr.treat.verify import truth
from gobrrr.workload import blamed, stdout_spared, warned_once

BUDGET_S = 300.0

WARM_UP = 3
"""Steps before anything is observed: they make what lives on, such as an optimizer's state."""

WAIT = 0.2
"""Of the budget, for a second process to have made the workload."""


def allowed_types(words: Iterable[str]) -> frozenset[str]:
    """Each of them a way to multiply, whether a treatment knows it or not."""
    asked = frozenset([words] if isinstance(words, str) else words)
    if strange := asked.difference(MATRIX_MODES):
        raise UsageError(f"--allow takes types as {', '.join(sorted(_used_types()))}; not {', '.join(sorted(strange))}")
    return asked


def _used_types() -> frozenset[str]:
    import gobrrr.treat.treatments  # noqa: F401 (registers them)

    return frozenset(one.allow for one in TREATMENTS.values() if one.allow is not None)


def treat(
    factory: Callable[[], Any],
    target: str,
    *,
    allow: Iterable[str] = (),
    budget_s: float = BUDGET_S,
    say: Say = lambda _sentence: None,
    clock: Clock | None = None,
    effort: StepEffort | None = None,
) -> Treated:
    """Examines the step, tries what can help it, and says what did. ^C ends the search and keeps what was found."""
    asked = allowed_types(allow)
    allowed = asked & _used_types()
    if not budget_s >= 0:
        raise UsageError(f"no search can end after {budget_s:g} seconds")
    subject = subject_of(factory)
    code = digest_of(subject.models.values())  # before somebody writes into its files
    clock = clock or DeviceClock(subject.device)
    effort = effort or (CPU_STEP_EFFORT if subject.device == "cpu" else CUDA_STEP_EFFORT)
    began_s, found, outer = clock.now_s(), None, sys.exception()
    try:
        with ExitStack() as stack:
            ours = stack.enter_context(preserved(subject.origin))
            stack.enter_context(stdout_spared())
            stack.enter_context(warned_once())
            stack.enter_context(patient_compiler())
            for _ in range(WARM_UP):
                blamed(subject.run, "the step")
            say("examining the step as it is")
            looked = partial(examine, target=target, effort=effort, modes=sorted(allowed))
            exam = looked(lambda: subject.origin)
            say("computing what is right, in fp64 where that runs")
            meanwhile = has_room_for_two(subject.device)
            rehearse = stack.enter_context(rehearsals(target, at_once=meanwhile))
            known = truth(subject)
            if meanwhile:
                rehearse((), WAIT * budget_s)  # so that it is there and at rest, or ended, before anything is raced
            floors = Floors(exam, partial(_measured_again, exam, subject.device, say))
            bench = Bench(subject, clock, effort, known, rehearse, floors, ours.device_bytes, began_s + budget_s, say)
            again = partial(_examined, subject, looked)
            search = Search(bench, exam, again, tuple(TREATMENTS.values()), allowed, warnings=_unused(asked - allowed))
            came = Admission(exam, peak_bytes(subject, ours.device_bytes), fingerprint_of(subject.models), code)
            stack.callback(subject.end)
            with suppress(KeyboardInterrupt):
                search.run()
            if search.kept:
                say("racing the step as it came against the step as treated; ^C leaves that out")
            final = _confirmed(search, _final(bench, search, exam))
            found = _treated(search, came, target, final, clock.now_s() - began_s)
            with interrupts_deferred():
                stack.close()
    except KeyboardInterrupt as interrupt:
        if found is None or interrupt.__context__ is not outer:  # else it waited until everything was put back
            raise
    return found


def _unused(types: frozenset[str]) -> list[str]:
    return [f"nothing is treated with {one} yet: --allow {one} allows nothing" for one in sorted(types)]


def _examined(subject: Subject, looked: Callable[[Callable[[], Any]], Exam]) -> Exam:
    with preserved(subject.origin):
        return looked(lambda: subject.run)


def _measured_again(exam: Exam, device: str, say: Say) -> Ceilings:
    say("  faster than the machine was measured to be: measuring that again")
    return measured(device, only=() if exam.program is None else needed_probes(exam.program), fresh=True)


@dataclass(frozen=True, slots=True)
class Admission:
    """What the subject was before anything was tried."""

    exam: Exam
    memory_bytes: int | None
    model: str
    """Its models' fingerprint."""
    code: str | None


@dataclass(frozen=True, slots=True)
class Final:
    """The step as treated against the step as it came."""

    plan: Plan
    before: Sample
    after: Sample
    comparison: Comparison
    side_by_side: bool = True

    @property
    def before_s(self) -> float:
        """Side by side with the other: the machine may have been in another mood when the step was examined."""
        return self.after.median * self.comparison.speedup


def _unchanged(step: Sample) -> Final:
    return Final((), step, step, Comparison(1.0, Interval(1.0, 1.0)))


def _final(bench: Bench, search: Search, exam: Exam) -> Final:
    """Both side by side once more."""
    subject, plan = bench.subject, bench.subject.plan
    if not plan:
        return _unchanged(Sample(exam.window_step_s))
    try:
        with preserved(subject.origin):
            ran = raced(bench, Turn(subject, keep=0, before=[], after=list(subject.courses)))
            search.warnings += [f"in the last race {compiled_meanwhile(ran)}"] if ran.recompiles else []
            return Final(plan, ran.before, ran.after, ran.comparison)
    except KeyboardInterrupt:
        return _not_raced(search, exam, plan)
    except Exception as error:  # noqa: BLE001 (what has run before, and does not now, is nothing to keep)
        search.disown(f"failed in the last race: {said_by(error)}")
        return _unchanged(Sample(exam.window_step_s))


def _not_raced(search: Search, exam: Exam, plan: Plan) -> Final:
    """By what the step took when it was examined, and in the race of the last treatment that was kept."""
    before = Sample(exam.window_step_s)
    race = search.kept[-1].trial.race if search.kept else None
    if race is None:
        return _unchanged(before)
    search.warnings.append("the last race was interrupted: before and after were not timed side by side")
    first, last = before.interval(), race.after.interval()
    interval = Interval(first.low / last.high, first.high / last.low)
    return Final(plan, before, race.after, Comparison(before.median / race.step_s, interval), side_by_side=False)


def _confirmed(search: Search, final: Final) -> Final:
    """What won its own races and is slower in the end was luck: nothing of it is kept."""
    won, interval = final.comparison.speedup, final.comparison.interval
    if not search.kept or not final.side_by_side:
        return final
    side_by_side = f"{won:.2f}x ({interval.low:.2f} to {interval.high:.2f})"
    if won >= 1:
        if interval.low < 1:
            search.warnings.append(f"in the last race it may be no faster than the step as it came: {side_by_side}")
        return final
    search.disown(f"all that was kept is slower in the end: {side_by_side} beside the step as it came")
    return _unchanged(final.before)


def _treated(search: Search, came: Admission, target: str, final: Final, spent_s: float) -> Treated:
    import torch

    subject, exam = search.bench.subject, came.exam
    interval_s = final.after.interval()
    predicted = prod(attempt.candidate.forecast.speedup for attempt in search.kept)
    kept = tuple(_kept(attempt, subject) for attempt in search.kept)
    return Treated(
        target=target,
        machine=exam.ceilings.device,
        baseline_s=final.before_s,
        treated_s=final.after.median,
        treated_low_s=interval_s.low,
        treated_high_s=interval_s.high,
        speedup=final.comparison.speedup,
        speedup_low=final.comparison.interval.low,
        speedup_high=final.comparison.interval.high,
        predicted_speedup=predicted,
        compulsory_floor_s=search.bench.floors.compulsory_s(final.plan),
        fused_floor_s=search.bench.floors.fused_s(final.plan),
        memory_before_bytes=came.memory_bytes,
        memory_after_bytes=kept[-1].memory_bytes if kept else came.memory_bytes,
        spent_s=spent_s,
        kept=kept,
        rejected=tuple(_rejected(attempt) for attempt in search.lost.values()),
        not_tried=tuple(NotTried(name, bound, why) for name, (bound, why) in search.passed_over.items()),
        prescription=Prescription(
            target=target,
            made_at=datetime.now(UTC).isoformat(timespec="seconds"),
            torch=torch.__version__,
            device=identify(subject.device).name,
            model=came.model,
            doses=prescribed(final.plan, kept),
            predicted=predicted,
            measured=final.comparison.speedup,
            trains=None if exam.program is None else Chart(exam, subject).trains,
            models=sum(not is_bare(model) for model in subject.models.values()),
            optimizers=len(subject.optimizers),
            code=came.code,
        ),
        advice=_advice(search, exam, final),
        warnings=(*exam.quality.warnings, *search.warnings),
    )


def _advice(search: Search, exam: Exam, final: Final) -> tuple[Advice, ...] | None:
    """None where nobody has looked, or was interrupted."""
    if final.plan and search.unseen:
        return None
    with suppress(KeyboardInterrupt):
        return advised(search.exam if final.plan else exam, search.bench.subject)
    return None


def _kept(attempt: Attempt, subject: Subject) -> Kept:
    trial, treatment = attempt.trial, attempt.candidate.dose.treatment
    assert trial.race is not None, "what was kept has won a race"
    assert trial.numerics is not None, "and was checked before"
    won, saved_s = trial.race.comparison, trial.race.before.median - trial.race.step_s
    return Kept(
        treatment=treatment.name,
        title=treatment.title,
        sites=attempt.candidate.dose.sites,
        predicted=attempt.candidate.forecast.speedup,
        measured=won.speedup,
        low=won.interval.low,
        high=won.interval.high,
        step_s=trial.race.step_s,
        numerics=trial.numerics,
        compile_s=trial.compile_s,
        break_even_steps=trial.compile_s / saved_s if saved_s > 0 else None,
        memory_bytes=trial.memory_bytes,
        by_hand=_by_hand(attempt.candidate.dose, subject),
    )


def _by_hand(dose: Dose, subject: Subject) -> str:
    try:
        return written_out(dose, subject)
    except Exception:  # noqa: BLE001 (it looks into the user's code, and what was found is worth more than how to write it)
        return dose.treatment.by_hand


def _rejected(attempt: Attempt) -> Rejected:
    """The speed of what computes other numbers is none."""
    trial, name = attempt.trial, attempt.candidate.dose.treatment.name
    reason, predicted = trial.reason or RIVAL_FASTER, attempt.candidate.forecast.speedup
    if trial.race is None or not trial.is_sound:
        return Rejected(name, reason, predicted, None)
    ran = trial.race.comparison
    return Rejected(name, reason, predicted, ran.speedup, ran.interval.low, ran.interval.high, trial.race.step_s)
