"""A Prescription: made of a plan that proved itself, and applied to a model and its optimizer elsewhere."""

import hashlib
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr import schema
from gobrrr.errors import BadInput, GobrrrError
from gobrrr.timing.state import preserved
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.inference import guarded, make_room, refuse_training
from gobrrr.treat.outcome import Kept, PrescribedDose, Prescription
from gobrrr.treat.subject import Subject, examined_subject
from gobrrr.treat.treatment import TREATMENTS, Dose, Plan, Stage, Unfit, graphless
from gobrrr.treat.trial import said_by

if TYPE_CHECKING:
    import torch


FIRST_STEPS = 2

MOST_MODELS = 5
"""Of one step, that are told apart whatever their order."""


def doses_of(named: Iterable[tuple[str, tuple[str, ...]]]) -> Plan:
    import gobrrr.treat.treatments  # noqa: F401 (registers them)

    found = []
    for name, sites in named:
        if name not in TREATMENTS:
            raise BadInput(f"there is no treatment {name!r}: upgrade gobrrr")
        found.append(Dose(TREATMENTS[name], sites))
    return tuple(found)


def prescribed(plan: Iterable[Dose], kept: Iterable[Kept]) -> tuple[PrescribedDose, ...]:
    """With what each gained when it was tried, as far as it was kept by itself."""
    gains = {one.treatment: (one.predicted, one.measured) for one in kept}
    return tuple(
        PrescribedDose(dose.treatment.name, dose.sites, *gains.get(dose.treatment.name, (None, None))) for dose in plan
    )


def fingerprint_of(models: "Mapping[str, torch.nn.Module]") -> str:
    """Of what the models are made of: names, shapes and types of their parameters."""
    lines = [
        f"{root}.{name} {tuple(parameter.shape)} {parameter.dtype}"
        for root, model in models.items()
        for name, parameter in model.named_parameters()
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


@dataclass(slots=True)
class Applied:
    """A prescription in force on a model. `step` is for what holds the whole step; `undo` ends all of it."""

    subject: Subject
    plan: Plan
    """As prescribed: what holds the whole step waits for `step`."""
    undo: Callable[[], None]

    def step(self, step: Callable[[], Any]) -> Callable[[], Any]:
        """The step to call from now on. A captured one reads each batch from the same tensors: what the step finds
        under a name of its own is copied there, and all else has to be. Large results are overwritten by the next step.
        """
        self.undo()
        refuse_training(self.subject, self.plan)
        self.subject.step = self.subject.origin = step
        self.subject.books = None
        try:
            put_in_force(self.subject, self.plan)
        except Unfit as unfit:
            raise BadInput(f"the prescription is not for this step: {unfit}") from unfit
        self.undo = guarded(self.subject, self.plan)
        return self.subject.run


def put_in_force(subject: Subject, plan: Plan) -> None:
    """Before a step is captured it is run twice, and these steps count: what an optimizer makes in its first step must
    be there. What compiles does so now, under the settings that it was tried with: of that step nothing is left.
    """
    with patient_compiler():
        for _ in range(FIRST_STEPS if graphless(plan) != plan else 0):
            subject.run()
        subject.become(plan)
        with preserved(subject.origin) as kept:
            subject.run()
    for warning in kept.warnings:
        warnings.warn(f"a step was run to compile it: {warning}", stacklevel=3)


def apply(
    prescription: "Prescription | str | Path",
    model: "torch.nn.Module | Sequence[torch.nn.Module]",
    optimizer: "torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None" = None,
) -> Applied:
    """Applies what was prescribed for this very model, or refuses and says why. Of a step of several models, or
    optimizers, all are given, as a list.

    What is for inference ends by itself where the model is trained or loads other weights.
    """
    found = prescription if isinstance(prescription, Prescription) else schema.read(Prescription, Path(prescription))
    subject = examined_subject(_no_step, _holding(model, optimizer))
    subject.models = _named_as(found.model, subject.models)
    refuse_others(found, subject)
    doses = doses_of((dose.treatment, dose.sites) for dose in found.doses)
    make_room(subject.models.values())
    try:
        refuse_training(subject, doses)
        subject.become(tuple(_without_step(doses, subject)))
    except GobrrrError:
        raise
    except Exception as error:  # of torch's and of compilers: the model is as it was, and its owner is told
        raise BadInput(f"the prescription cannot be applied to this model: {said_by(error)}") from error
    return Applied(subject, doses, guarded(subject, doses))


def _named_as(fingerprint: str, models: "dict[str, torch.nn.Module]") -> "dict[str, torch.nn.Module]":
    """In the order of the step that was treated, whatever order they are given in."""
    orders = permutations(models.values()) if len(models) <= MOST_MODELS else ()
    named = (dict(zip(models, order, strict=True)) for order in orders)
    return next((one for one in named if fingerprint_of(one) == fingerprint), models)


def _without_step(plan: Plan, subject: Subject) -> Iterator[Dose]:
    """What can be done while nobody knows the step: compiled are its models."""
    for dose in plan:
        if dose.sites != ("step",):
            yield dose
        elif dose.treatment.stage is Stage.FUSION:
            yield Dose(dose.treatment, tuple(f"{root}:" for root in subject.models))


def _no_step() -> None:
    raise BadInput("this prescription needs the step: step = gobrrr.apply(...).step(step)")


def _holding(*things: object) -> Callable[[], object]:
    return lambda: things


def refuse_others(prescription: Prescription, subject: Subject) -> None:
    """What was proven on one model, torch and device says nothing about others."""
    import torch

    from gobrrr.machine import identify

    for what, was, here in (
        ("model", prescription.model, fingerprint_of(subject.models)),
        ("torch", prescription.torch, torch.__version__),
        ("device", prescription.device, identify(subject.device).name),
    ):
        if was != here:
            raise BadInput(f"the prescription is for another {what} ({was}, here {here}): run gobrrr treat again")
