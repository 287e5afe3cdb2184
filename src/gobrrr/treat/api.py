"""`gobrrr.treat`: treating what is there already, from Python."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, overload

from gobrrr.treat.inference import guarded, make_room
from gobrrr.treat.outcome import Treated
from gobrrr.treat.prescription import doses_of, put_in_force
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treating import BUDGET_S
from gobrrr.treat.treating import treat as treat_factory
from gobrrr.workload import Step, Workload

TARGET = "the workload"


@dataclass(frozen=True, slots=True)
class Stays:
    """What helped, in force until it is undone."""

    found: Treated
    subject: Subject
    undo: Callable[[], None]

    def step(self) -> Any:
        """A step as it is treated. A captured one reads each batch from the same tensors: copy into those."""
        return self.subject.run()


@overload
def treat(
    workload: Workload | tuple[Any, Any] | Step,
    *,
    allow: Iterable[str] = (),
    budget_s: float = BUDGET_S,
    keep: Literal[False] = False,
    say: Callable[[str], None] = ...,
) -> Treated: ...


@overload
def treat(
    workload: Workload | tuple[Any, Any] | Step,
    *,
    allow: Iterable[str] = (),
    budget_s: float = BUDGET_S,
    keep: Literal[True],
    say: Callable[[str], None] = ...,
) -> Stays: ...


def treat(
    workload: Workload | tuple[Any, Any] | Step,
    *,
    allow: Iterable[str] = (),
    budget_s: float = BUDGET_S,
    keep: bool = False,
    say: Callable[[str], None] = lambda _sentence: None,
) -> Treated | Stays:
    """Tries what can make this workload, pair or step faster, and says what did; see `gobrrr treat --help`.

    Everything is afterwards as it was; with `keep` what helped is in force, and its steps are run by `.step()`.
    """
    found = treat_factory(lambda: workload, TARGET, allow=allow, budget_s=budget_s, say=say)
    return _staying(workload, found) if keep else found


def _staying(workload: Workload | tuple[Any, Any] | Step, found: Treated) -> Stays:
    subject = subject_of(lambda: workload)
    plan = doses_of((dose.treatment, dose.sites) for dose in found.prescription.doses)
    make_room(subject.models.values())
    put_in_force(subject, plan)
    return Stays(found, subject, guarded(subject, plan))
