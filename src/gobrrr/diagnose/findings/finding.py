"""A Finding: a named problem with evidence and seconds at stake; and the registry of all that are looked for."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from textwrap import dedent
from typing import TypeAlias

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.counterfactual import Sides, at_stake
from gobrrr.diagnose.flow import Flow, data_flow
from gobrrr.diagnose.fusion import FusedFloor, GroupFloor
from gobrrr.errors import UsageError
from gobrrr.exam import Exam
from gobrrr.units import percent

WORTH = 0.02
"""Of the step: the least gain to speak of. `step_s` itself is good to about ± 2 %, so less could not be shown."""

MEASURABLE = 0.005
"""Of the step: device seconds below this are no finding. Half a percent is what kernel times vary by between two runs;
a list of such trifles hides what matters."""

MOST_DISPATCHES = 10
"""Of the host's time for an op: a chain of bare additions takes one for each, eager BERT-large four, an optimizer that
loops over its tensors up to ten."""

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

    def saving(self, device_s: float, evidence: Iterable[str], *, host_s: float = 0.0) -> Stake | None:
        """What a change stakes that takes so much off device and host; None if nobody could measure it.

        Time of a host that has time to spare is worth nothing; the device's is, as soon as the host is quicker.
        """
        stake_s = at_stake(self.sides, device_less_s=max(0.0, device_s), host_less_s=max(0.0, host_s))
        more_s = max(device_s, host_s if stake_s is None else stake_s)
        if more_s < MEASURABLE * self.exam.step_s or more_s <= 0:
            return None
        return Stake(stake_s, max(0.0, device_s), tuple(evidence))

    @cached_property
    def busy_s(self) -> float:
        return sum(one.seconds for one in self.kernels)

    def idle_s(self, cause: str) -> float:
        """Of the step, in which the device waited for this; 0 where nobody saw it."""
        idle_s = max(0.0, self.exam.step_s - self.busy_s)
        return idle_s * (self.exam.idle or {}).get(cause, 0.0)

    @property
    def dispatch_s(self) -> float:
        """What the host pays for one op at the least; 0 where nobody measured it, so that nothing is promised."""
        return self.exam.ceilings.dispatch_s or 0.0

    @property
    def op_s(self) -> float:
        """What it pays for one op of this step: its time over all ops, views too, but no less than a bare dispatch.

        Python around an op and its gradient cost a few dispatches; what is beyond `MOST_DISPATCHES` is something else.
        """
        own_s = (self.sides.host_s or 0.0) / len(self.exam.ran) if self.exam.ran else 0.0
        return max(self.dispatch_s, min(own_s, MOST_DISPATCHES * self.dispatch_s))

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
    """What it is and why it costs time."""
    reads: str
    """Which evidence in the Exam decides, with the threshold."""
    treatment: str
    """In a line, for the report."""
    fix: str
    """As code."""
    unless: str
    """When to leave it alone."""
    run: Run


FINDINGS: dict[str, Rule] = {}


def finding(
    code: str, title: str, *, explanation: str, reads: str, treatment: str, fix: str, unless: str
) -> Callable[[Run], Run]:
    """Registers the decorated function, which knows its own precondition and gives None where it does not hold."""

    def register(run: Run) -> Run:
        assert code not in FINDINGS, f"{code} is taken"
        FINDINGS[code] = Rule(code, title, explanation, reads, treatment, dedent(fix).strip(), unless, run)
        return run

    return register


def selected(select: Iterable[str] = (), ignore: Iterable[str] = ()) -> tuple[Rule, ...]:
    """The rules whose code begins with one of the first, or all, and with none of the second: `B2`, `B201`."""
    wanted, unwanted = (tuple(_known(prefix) for prefix in prefixes) for prefixes in (select, ignore))
    codes = (code for code in sorted(FINDINGS) if code.startswith(wanted or "B") and not code.startswith(unwanted))
    return tuple(FINDINGS[code] for code in codes)


def _known(prefix: str) -> str:
    code = prefix.strip().upper()
    if any(known.startswith(code) for known in FINDINGS) and code:
        return code
    near = get_close_matches(code, FINDINGS, cutoff=0.5)
    raise UsageError(
        f"no finding's code begins with {prefix!r}; "
        + (f"near it: {', '.join(near)}" if near else f"the codes are {', '.join(sorted(FINDINGS))}")
    )


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
    broken = FINDINGS[BROKEN]
    return Finding(
        code=BROKEN,
        title=f"{rule.code} could not be looked for",
        seconds_at_stake=None,
        device_seconds=None,
        evidence=(f"{rule.title}: {type(error).__name__}: {error}",),
        explanation=broken.explanation,
        treatment=broken.treatment,
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
