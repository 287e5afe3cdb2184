"""A trial: the subject treated otherwise than it is, raced against what it was, and put back.

Its numbers are checked if it is the fastest of its kind so far.
"""

from collections.abc import Callable, Container
from dataclasses import dataclass
from math import inf

from gobrrr import units
from gobrrr.errors import GobrrrError
from gobrrr.stats import Comparison
from gobrrr.timing.clock import Clock
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import StepEffort, timed
from gobrrr.treat.floors import Floors
from gobrrr.treat.launched import launched
from gobrrr.treat.memory import Pool, peak_bytes, private_pools, released
from gobrrr.treat.numerics import Check
from gobrrr.treat.patience import given_up_after
from gobrrr.treat.race import CLEAR, Race, race
from gobrrr.treat.subject import Subject, Turn
from gobrrr.treat.treatment import Plan, Unfit
from gobrrr.treat.verify import Truth, verified

UNDECIDED = "cannot decide"
NO_FASTER = "no faster"
RIVAL_FASTER = "another of its kind is faster"

Rehearse = Callable[[Plan, float], str | None]
"""Tries a plan where it can do no harm, for so many seconds at most, and says what went wrong."""

Say = Callable[[str], None]
"""To whoever waits: what is being done."""


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of a plan beside the one in force."""

    plan: Plan
    reason: str | None
    """Why it is not better; None if it is."""
    race: Race | None = None
    numerics: Check | None = None
    """None where nobody would keep it: to check takes longer than to race, as without dropout it compiles anew."""
    memory_bytes: int | None = None
    compile_s: float = 0.0
    """What it took to become so, its first step included, beyond a usual one."""
    turn: Turn | None = None
    """To the plan, ready as it was tried, and back; None where that did not come about or was given up."""

    @property
    def is_sound(self) -> bool:
        """It ran, and nothing but its time may speak against it."""
        timed = self.race is not None and not self.race.recompiles
        return timed and (self.numerics is None or self.numerics.passed)

    @property
    def comparison(self) -> Comparison | None:
        return None if self.race is None else self.race.comparison


@dataclass(frozen=True, slots=True)
class Bench:
    """What every trial of one subject needs."""

    subject: Subject
    clock: Clock
    effort: StepEffort
    truth: Truth
    rehearse: Rehearse
    floors: Floors
    ours_bytes: int = 0
    """On the device, for as long as the subject is treated: the copy of what it was."""
    until_s: float = inf
    """When the budget is spent, by the clock."""
    say: Say = lambda _: None

    @property
    def left_s(self) -> float:
        return max(0.0, self.until_s - self.clock.now_s())


def trial(bench: Bench, plan: Plan, rival: float = 1.0) -> Trial:
    """Afterwards the subject is as it was before; whatever fails is the reason, and ^C passes through.

    Of its kind, the best so far is the rival: it is as many times as fast as what is in force.
    """
    said, rehearsed_s = _rehearsed(bench, plan)
    if said is not None:
        return Trial(plan, f"failed when rehearsed: {said}")
    turn, pools = None, private_pools(bench.subject.device)
    began_s = bench.clock.now_s()
    try:
        turn = bench.subject.become(plan)
        ready_s = bench.clock.now_s() - began_s + _first_step_s(bench)
        ready_s = max(ready_s, rehearsed_s)  # whose kernels are found compiled by now
        return _tried(bench, plan, turn, pools, ready_s, rival)
    except Exception as error:  # noqa: BLE001 (compilers raise anything, and other treatments can still help)
        return Trial(plan, said_by(error))
    finally:
        if turn is not None:
            turn.to_before()
        released(bench.subject.device)


def _rehearsed(bench: Bench, plan: Plan) -> tuple[str | None, float]:
    """What went wrong, and what it took. Nothing of either where there is nothing to fear."""
    if not any(dose.treatment.risky for dose in plan):
        return None, 0.0
    bench.say("  rehearsing it in a process of its own")
    if (said := bench.rehearse((), bench.left_s)) is not None:  # which may have to make the workload first
        return said, 0.0
    began_s = bench.clock.now_s()
    said = bench.rehearse(plan, bench.left_s)
    return said, bench.clock.now_s() - began_s


def _tried(bench: Bench, plan: Plan, turn: Turn, others: Container[Pool], ready_s: float, rival: float) -> Trial:
    subject = bench.subject
    bench.say("  racing")
    with preserved(subject.origin):
        ran = raced(bench, turn, clear=CLEAR)
        reason = _why_not(ran, bench.floors.violated_s(plan, ran.step_s), rival)
        if reason == NO_FASTER and _launches_the_same(subject, turn):
            reason = f"{NO_FASTER}: the same kernels run"
    if reason is not None:
        return Trial(plan, reason, ran)
    bench.say("  checking its numbers")
    found = verified(subject, bench.truth, plan, bench.say)
    if not found.passed:
        return Trial(plan, f"other numbers: {found.reason}", ran, found)
    memory = peak_bytes(subject, bench.ours_bytes, others)
    return Trial(plan, None, ran, found, memory, max(0.0, ready_s - ran.step_s), turn)


def _launches_the_same(subject: Subject, turn: Turn) -> bool:
    """The treatment is in force, and changes nothing but perhaps who asks."""
    after = launched(subject.run, subject.device)
    try:
        turn.to_before()
        return after == launched(subject.run, subject.device)
    finally:
        turn.to_after()


def _first_step_s(bench: Bench) -> float:
    """In which a compiler compiles, unless a graph was captured, for which it has compiled already."""
    with preserved(bench.subject.origin), given_up_after(bench.left_s):
        return timed(bench.subject.run, bench.clock, 1)


def raced(bench: Bench, turn: Turn, clear: float = 0.0) -> Race:
    """The subject as it is treated now, and however the race ends is treated again, against what it was before. Once
    more where something was compiled meanwhile.
    """
    ran = _raced(bench, turn, clear)
    if not ran.recompiles:
        return ran
    bench.say(f"  racing again: {compiled_meanwhile(ran)}")
    return _raced(bench, turn, clear)


def _raced(bench: Bench, turn: Turn, clear: float) -> Race:
    try:
        return race(bench.subject.run, bench.clock, bench.effort, turn.to_before, turn.to_after, clear=clear)
    finally:
        turn.to_after()


def compiled_meanwhile(ran: Race) -> str:
    return f"something was compiled again while it was timed ({ran.recompiles[0]})"


def _why_not(ran: Race, floor_s: float | None, rival: float) -> str | None:
    """The floor is one that it is below."""
    won, interval = ran.comparison.speedup, ran.comparison.interval
    if floor_s is not None:
        return (
            f"{units.seconds(ran.step_s)} is below the compulsory floor of {units.seconds(floor_s)}: "
            "work was skipped, or the clock is wrong"
        )
    if ran.recompiles:
        return compiled_meanwhile(ran)
    if ran.is_won:
        return None if won > rival else f"{RIVAL_FASTER}; its numbers were not checked"
    if ran.is_open:
        return f"{UNDECIDED}: the interval is {interval.low:.3f} to {interval.high:.3f} amid noise"
    return "slower" if interval.high < 1 else NO_FASTER


def said_by(error: Exception) -> str:
    """In a line."""
    if any(sign in str(error) for sign in ("out of memory", "can't allocate memory")):
        return "out of memory"
    if isinstance(error, Unfit | GobrrrError):
        return str(error)
    said = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {said[:200]}"
