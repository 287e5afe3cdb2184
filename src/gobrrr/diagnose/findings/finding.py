"""A Finding: a named problem with evidence and seconds at stake; and the registry of all that are looked for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.counterfactual import Sides, at_stake
from gobrrr.diagnose.flow import Flow, data_flow
from gobrrr.diagnose.fusion import FusedFloor, GroupFloor
from gobrrr.exam import Exam
from gobrrr.units import percent

WORTH = 0.02
"""Of the step: the least gain to speak of. `step_s` itself is good to about ± 2 %, so less could not be shown."""

MEASURABLE = 0.005
"""Of the step: device seconds below this are no finding. Half a percent is what kernel times vary by between two runs;
a list of such trifles hides what matters."""

BROKEN = "B501"
"""The code of a finding that could not be made: a matter of quality, as all B5xx."""


@dataclass(frozen=True, slots=True)
class Finding:
    code: str
    title: str
    seconds_at_stake: float | None
    """Of the step. Findings overlap: these do not add."""
    device_seconds: float | None
    """Of the device, whether or not the step waits for it."""
    evidence: tuple[str, ...]
    explanation: str
    treatment: str


@dataclass(frozen=True, slots=True)
class Stake:
    """What a rule found: how much is at stake, and what shows it."""

    seconds_at_stake: float | None
    device_seconds: float | None
    evidence: tuple[str, ...]


@dataclass(frozen=True)
class Case:
    """An Exam with what the diagnosis already knows about it."""

    exam: Exam
    kernels: tuple[Attributed, ...]
    sides: Sides
    limiter: str
    fused: FusedFloor | None

    def saving(self, device_s: float, evidence: Iterable[str]) -> Stake | None:
        """What a change stakes that takes so much off the device; None if nobody could measure it."""
        if device_s < MEASURABLE * self.exam.step_s or device_s <= 0:
            return None
        return Stake(at_stake(self.sides, device_less_s=device_s), device_s, tuple(evidence))

    @cached_property
    def busy_s(self) -> float:
        return sum(one.seconds for one in self.kernels)

    @cached_property
    def units(self) -> Mapping[tuple[int, ...], float]:
        """Seconds by the ops that were done together: several kernels may do one op, one kernel may do several."""
        seconds: defaultdict[tuple[int, ...], float] = defaultdict(float)
        for one in self.kernels:
            if one.kernel.fused_from:
                seconds[one.kernel.fused_from] += one.seconds
        return seconds

    @cached_property
    def flow(self) -> Flow | None:
        return None if self.exam.program is None else data_flow(self.exam.program.ops)

    @cached_property
    def group_of(self) -> Mapping[int, GroupFloor]:
        """Of each op, the group that one kernel could do it in."""
        groups = () if self.fused is None else self.fused.groups
        return {op: one for one in groups for op in one.group.ops}


Run: TypeAlias = Callable[[Case], Stake | None]


@dataclass(frozen=True, slots=True)
class Rule:
    """What is looked for: the words are the same whenever it is found, the numbers come from the Exam."""

    code: str
    title: str
    explanation: str
    treatment: str
    run: Run


FINDINGS: dict[str, Rule] = {}


def finding(code: str, title: str, *, explanation: str, treatment: str) -> Callable[[Run], Run]:
    """Registers the decorated function, which knows its own precondition and gives None where it does not hold."""

    def register(run: Run) -> Run:
        assert code not in FINDINGS, f"{code} is taken"
        FINDINGS[code] = Rule(code, title, explanation, treatment, run)
        return run

    return register


def find_all(case: Case, rules: Iterable[Rule] | None = None) -> tuple[Finding, ...]:
    """Everything there is to find, the most step seconds first, then the most device seconds; what broke comes last."""
    asked = FINDINGS.values() if rules is None else rules
    found = [one for rule in asked if (one := _looked_for(rule, case)) is not None]
    return tuple(sorted(found, key=lambda one: (one.code == BROKEN, -(one.seconds_at_stake or 0), -_device_s(one))))


def _looked_for(rule: Rule, case: Case) -> Finding | None:
    try:
        stake = rule.run(case)
    except Exception as error:  # noqa: BLE001 (one broken rule must not take the others with it; it is named)
        return _broken(rule, error)
    if stake is None:
        return None
    return Finding(
        rule.code,
        rule.title,
        stake.seconds_at_stake,
        stake.device_seconds,
        stake.evidence,
        rule.explanation,
        rule.treatment,
    )


def _broken(rule: Rule, error: Exception) -> Finding:
    return Finding(
        code=BROKEN,
        title=f"{rule.code} could not be looked for",
        seconds_at_stake=None,
        device_seconds=None,
        evidence=(f"{rule.title}: {type(error).__name__}: {error}",),
        explanation="Looking for this problem failed on this Exam. The other findings are not touched by it.",
        treatment="report this as a bug of gobrrr, with the Exam's file",
    )


def nothing_to_gain(found: Iterable[Finding], step_s: float) -> str | None:
    """The sentence that says so, unless a finding has something to give or one of them does not know."""
    if any(_may_matter(one, WORTH * step_s) for one in found):
        return None
    return f"nothing to gain here: no finding has {percent(WORTH, 0)} of the step at stake"


def _may_matter(one: Finding, least_s: float) -> bool:
    """A change gives the step no more than it takes off the device: only where that is not known may it be anything."""
    if one.seconds_at_stake is None and not one.device_seconds:
        return True
    return max(one.seconds_at_stake or 0.0, _device_s(one)) >= least_s


def _device_s(one: Finding) -> float:
    return one.device_seconds or 0.0
