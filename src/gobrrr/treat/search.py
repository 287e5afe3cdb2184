"""The search: which treatments help, found by trying those that can, the cheapest and most promising first.

What is predicted to gain too little even at its bound is not tried, and the page says so. After each treatment that is
kept the step is examined again, because its limits have moved: a fused step may be limited by the host, a graphed one
is by the device. Of treatments that exclude each other all that can help are tried, against the same step; and once a
graph has taken the host out of the picture, those that lost because of it have a second chance.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.exam import Exam
from gobrrr.timing.state.undo import interrupts_deferred
from gobrrr.treat.chart import Chart
from gobrrr.treat.treatment import Dose, Forecast, NotYet, Numerics, Plan, Stage, Treatment, Unfit, graphless
from gobrrr.treat.trial import Bench, Trial, said_by, trial

WORTH_TRYING = 1.02
"""Predicted at the most: below, a race could hardly show it."""

REPLAY_S = 12e-6
"""Of a captured graph, where nobody measured it."""

SPENT = "the budget is spent"
INTERRUPTED = "the search was interrupted"

Examine = Callable[[], Exam]


@dataclass(frozen=True, slots=True)
class Candidate:
    dose: Dose
    forecast: Forecast


@dataclass(frozen=True, slots=True)
class Attempt:
    """A treatment that was tried, with what was predicted and what came of it."""

    candidate: Candidate
    trial: Trial


@dataclass
class Search:
    """What was found so far: it is worth something at any moment, also when the search is interrupted."""

    bench: Bench
    exam: Exam
    """Of the step as it is treated now, unless that is `unseen`."""
    examine: Examine
    treatments: tuple[Treatment, ...]
    allowed: frozenset[str]
    kept: list[Attempt] = field(default_factory=list)
    lost: dict[str, Attempt] = field(default_factory=dict)
    """Tried and not kept, by name."""
    passed_over: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    """Not tried: the bound, if there is one, and why."""
    beaten: dict[str, tuple[float | None, str]] = field(default_factory=dict)
    """Not tried once and for all: another of its kind is kept, which was seen to gain more than it ever could, or for
    want of time.
    """
    unfit: dict[str, str] = field(default_factory=dict)
    """Not for this step, whatever else is kept, and why."""
    warnings: list[str] = field(default_factory=list)
    candidates: list[Candidate] = field(default_factory=list)
    """Of the moment, in their turn."""
    unseen: bool = False
    """Something was kept, and the step was not examined since."""

    def run(self) -> None:
        try:
            while (rivals := self._next()) and not self._is_spent():
                best = self._best(rivals)
                if best is not None:
                    self._keep(best)
        except KeyboardInterrupt:
            self._leave(INTERRUPTED)
            raise
        if self._is_spent():
            self._leave(SPENT)

    # **** choosing ****

    def _next(self) -> list[Candidate]:
        """The first candidate and those that exclude it."""
        if self.unseen and self._is_spent():
            return []
        self._weigh()
        if not self.candidates:
            return []
        group = self.candidates[0].dose.treatment.group
        rivals = [one for one in self.candidates if group is not None and one.dose.treatment.group == group]
        return rivals or self.candidates[:1]

    def _leave(self, why: str) -> None:
        """What is not tried any more: it had a bound, or is not weighed any more."""
        bounds = {one.dose.treatment.name: one.forecast.high for one in self.candidates}
        passed, self.passed_over = self.passed_over, dict(self.beaten)
        for treatment in self._open():
            name = treatment.name
            if (reason := self._ruled_out(treatment)) is not None:
                self.passed_over[name] = None, reason
            elif name in bounds:
                self.passed_over[name] = bounds[name], why
            else:
                reason = self.unfit.get(name) or self._forbidden(treatment) or why
                self.passed_over[name] = passed.get(name, (None, reason))

    def _open(self) -> list[Treatment]:
        """Neither kept nor tried nor beaten."""
        done = {_name(attempt) for attempt in self.kept} | set(self.lost) | set(self.beaten)
        return [treatment for treatment in self.treatments if treatment.name not in done]

    def _ruled_out(self, treatment: Treatment) -> str | None:
        """Whatever it could gain."""
        if treatment.group is not None and any(_group(attempt) == treatment.group for attempt in self.kept):
            return self.unfit.get(treatment.name, "another of its kind is kept")
        return None

    def _forbidden(self, treatment: Treatment) -> str | None:
        if treatment.allow is None or treatment.allow in self.allowed:
            return None
        return f"changes numbers: --allow {treatment.allow}"

    def _weigh(self) -> None:
        """All that are open. An interrupt meanwhile leaves what was known before."""
        chart, candidates, passed_over = Chart(self.exam, self.bench.subject), [], dict(self.beaten)
        for treatment in self._open():
            found = self._weighed(treatment, chart)
            if isinstance(found, Candidate):
                candidates.append(found)
            else:
                passed_over[treatment.name] = found
        names = {one.dose.treatment.name for one in candidates}
        waiting = [one for one in candidates if one.dose.treatment.instead_of in names]
        passed_over |= {
            one.dose.treatment.name: (one.forecast.high, f"{one.dose.treatment.instead_of} does more")
            for one in waiting
        }
        self.candidates = sorted((one for one in candidates if one not in waiting), key=_turn)
        self.passed_over = passed_over

    def _weighed(self, treatment: Treatment, chart: Chart) -> Candidate | tuple[float | None, str]:
        """Or a bound, and why it is not tried."""
        if (reason := self._ruled_out(treatment)) is not None:
            return None, reason
        sites, forbidden = None, self._forbidden(treatment)
        try:
            sites = treatment.kind.sites(chart)
            forecast = treatment.kind.forecast(chart, sites)
        except NotYet as unfit:
            return None, str(unfit)
        except Unfit as unfit:  # how fast a type is was not measured where nobody has allowed it
            self.unfit[treatment.name] = str(unfit) if sites is None or forbidden is None else forbidden
            return None, self.unfit[treatment.name]
        except Exception as error:  # noqa: BLE001 (it looks into the user's models, and other treatments can still help)
            return None, f"could not be weighed: {said_by(error)}"
        self.unfit.pop(treatment.name, None)
        if forecast.high < WORTH_TRYING:
            return forecast.high, "too little to gain"
        if forbidden is not None:
            return forecast.high, forbidden
        return Candidate(Dose(treatment, sites), forecast)

    def _is_spent(self) -> bool:
        return self.bench.left_s == 0

    # **** trying ****

    def _best(self, rivals: Iterable[Candidate]) -> Attempt | None:
        """Of the others nothing is left but what was found: a captured graph holds memory."""
        best: Attempt | None = None
        for one in rivals:
            if self._is_spent():
                if best is not None:
                    self._pass_over(one, SPENT)
                continue
            if best is not None and one.forecast.high < _speedup(best):
                self._pass_over(one, f"{_name(best)} gains more than it could")
                continue
            try:
                attempt = self._tried(one, 1.0 if best is None else _speedup(best))
            except KeyboardInterrupt:
                if best is not None:
                    self._take(best)
                raise
            if attempt.trial.reason is None:
                best, attempt = attempt, best
            if attempt is not None:
                self.lost[_name(attempt)] = done_with(attempt)
        return best

    def _pass_over(self, candidate: Candidate, why: str) -> None:
        """For good, unless it was tried before."""
        name = candidate.dose.treatment.name
        if name not in self.lost:
            self.beaten[name] = candidate.forecast.high, why

    def _tried(self, candidate: Candidate, rival: float) -> Attempt:
        name = candidate.dose.treatment.name
        self.bench.say(f"{name}, predicted {candidate.forecast.speedup:.2f}x")
        plan = with_dose(self.bench.subject.plan, candidate.dose)
        found = trial(self.bench, plan, rival)
        below = graphless(plan)
        if not found.is_sound and below != plan and candidate.dose in below and not self._is_spent():
            without = trial(self.bench, below, rival)  # what cannot be captured may still be faster than what was
            found = without if without.reason is None else found
        attempt = Attempt(candidate, found)
        self.bench.say(f"{name}: {found.reason or f'{_speedup(attempt):.2f}x'}")
        return attempt

    def _keep(self, attempt: Attempt) -> None:
        was_unseen = self.unseen
        self._take(attempt)
        if not self._is_spent():
            self._examine_again(attempt, unseen=was_unseen)
        if attempt.candidate.dose.treatment.stage is Stage.GRAPH:
            self._second_chance()

    def _take(self, attempt: Attempt) -> None:
        """As it was tried: nothing is compiled or captured again. What was known is now of the step before."""
        assert attempt.trial.turn is not None, "what is kept was tried"
        treatment = attempt.candidate.dose.treatment
        with interrupts_deferred():
            attempt.trial.turn.to_after()
            for old in [one for one in self.kept if one.candidate.dose not in attempt.trial.plan]:
                self.kept.remove(old)
                self.lost[old.candidate.dose.treatment.name] = replaced(old, attempt)
            self.kept.append(done_with(attempt))
            self.lost.pop(treatment.name, None)
            self.unseen, self.candidates, self.passed_over = True, [], dict(self.beaten)
        self.bench.say(f"keeping {treatment.name}: {_speedup(attempt):.2f}x, {_step_time(attempt)} a step by now")

    def disown(self, reason: str) -> None:
        """Nothing is kept after all."""
        self.bench.subject.end()
        for attempt in self.kept:
            self.lost[_name(attempt)] = Attempt(attempt.candidate, replace(attempt.trial, reason=reason))
        self.kept.clear()

    def _second_chance(self) -> None:
        """Without the host in the picture, what fused by another way may be the faster."""
        for old in [attempt for attempt in self.kept if attempt.candidate.dose.treatment.stage is Stage.FUSION]:
            again = [
                attempt.candidate
                for attempt in self.lost.values()
                if _excludes(attempt, old) and attempt.trial.is_sound
            ]
            best = self._best(again)
            if best is not None:
                self._keep(best)

    def _examine_again(self, attempt: Attempt, *, unseen: bool) -> None:
        """Below the graph, where there is one: what is captured cannot be counted, and takes as long as it did.

        A graph alone changes nothing below it, which was `unseen` before or not.
        """
        subject = self.bench.subject
        below = len(graphless(subject.plan))
        graphed = below < len(subject.plan)
        if attempt.candidate.dose.treatment.stage is not Stage.GRAPH:
            try:
                with subject.ended(below):
                    self.exam = self.examine()
                unseen = False
            except GobrrrError as error:
                unseen = True
                self.warnings.append(f"{_name(attempt)} could not be examined: {error}")
        if graphed and attempt.trial.race is not None:
            self.exam = graphed_exam(self.exam, attempt.trial.race.step_s)
        self.unseen = unseen


def _turn(one: Candidate) -> tuple[bool, bool, float]:
    """What takes seconds before what takes minutes, and the most promising first. But what quantizes comes last: how to
    do that best depends on who multiplies, and that is a compiler's choice.
    """
    treatment = one.dose.treatment
    return treatment.numerics is Numerics.QUANTIZED, treatment.compiles, -one.forecast.speedup


def with_dose(plan: Plan, dose: Dose) -> Plan:
    """In the place of what it excludes, in the order of the stages."""
    group = dose.treatment.group
    others = [one for one in plan if group is None or one.treatment.group != group]
    return tuple(sorted((*others, dose), key=lambda one: one.treatment.stage))


def graphed_exam(exam: Exam, step_s: float) -> Exam:
    """The same kernels, asked for by one call."""
    return replace(exam, window_step_s=(step_s,), host_s=exam.ceilings.graph_replay_s or REPLAY_S, idle=None, syncs=())


def replaced(old: Attempt, by: Attempt) -> Attempt:
    reason = f"{by.candidate.dose.treatment.name} is faster in its place"
    return Attempt(old.candidate, replace(old.trial, reason=reason))


def done_with(attempt: Attempt) -> Attempt:
    """Without the way back, which holds what it leads to."""
    return Attempt(attempt.candidate, replace(attempt.trial, turn=None))


def _speedup(attempt: Attempt) -> float:
    return attempt.trial.race.comparison.speedup if attempt.trial.race is not None else 0.0


def _name(attempt: Attempt) -> str:
    return attempt.candidate.dose.treatment.name


def _step_time(attempt: Attempt) -> str:
    return units.seconds(None if attempt.trial.race is None else attempt.trial.race.step_s)


def _excludes(attempt: Attempt, other: Attempt) -> bool:
    group = attempt.candidate.dose.treatment.group
    return group is not None and group == _group(other)


def _group(attempt: Attempt) -> str | None:
    return attempt.candidate.dose.treatment.group
