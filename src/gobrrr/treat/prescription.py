"""A Prescription: made of a plan that proved itself, and applied to a model and its optimizer elsewhere."""

import hashlib
import re
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.errors import BadInput, GobrrrError, UsageError
from gobrrr.timing.state import preserved
from gobrrr.treat.code import differ, digest_of
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.inference import guarded, make_room, optimized, refuse_training
from gobrrr.treat.outcome import Kept, PrescribedDose, Prescription, Treated, prescription_in
from gobrrr.treat.subject import Subject, examined_subject, is_bare
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
        by_number = TREATMENTS[name].stage is Stage.OPTIMIZER
        if not sites or (by_number and not all(site.isdecimal() for site in sites)):
            raise BadInput(f"the prescription is damaged: {name} is for {', '.join(map(repr, sites)) or 'nothing'}")
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

        Where that fails, what was in force before is again.
        """
        refuse_arguments(step)
        refuse_training(self.subject, self.plan)
        self.undo()
        try:
            self.subject.step = self.subject.origin = step
            self.subject.books = self.subject.logits = None
            put_in_force(self.subject, self.plan)
        except BaseException as error:
            self.subject.step = self.subject.origin = _no_step
            self.subject.become(tuple(_without_step(self.plan, self.subject)))
            if isinstance(error, Unfit):
                raise BadInput(f"the prescription is not for this step: {error}") from error
            raise
        finally:
            self.undo = guarded(self.subject, self.plan)
        return self.subject.run


def refuse_arguments(step: Callable[..., Any]) -> None:
    """Of a step that cannot be called without."""
    try:
        signature(step).bind()
    except TypeError:
        raise BadInput(
            "a step is called without arguments and finds its batch under a name: rx.step(lambda: step(*batch))"
        ) from None
    except ValueError:  # Python cannot tell
        return


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
        warnings.warn(f"some steps were run to compile them: {warning}; draw batches outside of the step", stacklevel=3)


def apply(
    prescription: "Prescription | Treated | str | Path",
    model: "torch.nn.Module | Sequence[torch.nn.Module]",
    optimizer: "torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None" = None,
) -> Applied:
    """Applies what was prescribed for this very model, or refuses and says why. Of a step of several models, or
    optimizers, all are given, as a list.

    What is for inference ends by itself where the model is trained or loads other weights.
    """
    found = _read(prescription)
    subject = examined_subject(_no_step, _holding(_unwrapped(model), optimizer))
    subject.models = _named_as(found.model, subject.models)
    refuse_others(found, subject)
    doses = tuple(_shown(found, subject))
    refuse_missing(found, subject, doses)
    refuse_training(subject, doses)
    make_room(subject.models.values())
    try:
        subject.become(tuple(_without_step(doses, subject)))
    except GobrrrError:
        raise
    except Exception as error:  # of torch's and of compilers: the model is as it was, and its owner is told
        raise BadInput(f"the prescription cannot be applied to this model: {said_by(error)}") from error
    return Applied(subject, doses, guarded(subject, doses))


def _read(prescription: "Prescription | Treated | str | Path") -> Prescription:
    if isinstance(prescription, str | Path):
        return prescription_in(Path(prescription))
    found = prescription.prescription if isinstance(prescription, Treated) else prescription
    if not isinstance(found, Prescription):
        raise UsageError(f"a prescription is a file, or what gobrrr.treat has found, and not a {type(found).__name__}")
    return found


def _unwrapped(model: Any) -> Any:
    """Behind torch.compile, or what spreads it over devices."""
    if isinstance(model, list | tuple):
        return [_unwrapped(one) for one in model]
    from torch.nn import DataParallel
    from torch.nn.parallel import DistributedDataParallel

    inner = model.module if isinstance(model, DataParallel | DistributedDataParallel) else model
    return getattr(inner, "_orig_mod", inner)


def refuse_missing(prescription: Prescription, subject: Subject, plan: Plan) -> None:
    """An optimizer that has to know, or one that knows nothing of the model."""
    for dose in plan:
        if dose.treatment.moves and prescription.trains and not subject.optimizers:
            raise BadInput(
                f"{dose.treatment.name} lays weights elsewhere, and what an optimizer keeps of them: "
                "gobrrr.apply(..., model, optimizer)"
            )
    own = {id(one) for model in subject.models.values() for one in model.parameters()}
    for optimizer in subject.optimizers:
        if own.isdisjoint(map(id, optimized(optimizer))):
            raise BadInput(f"this {type(optimizer).__name__} holds no parameter of the model")


def _named_as(fingerprint: str, models: "dict[str, torch.nn.Module]") -> "dict[str, torch.nn.Module]":
    """In the order of the step that was treated, whatever order they are given in."""
    orders = permutations(models.values()) if len(models) <= MOST_MODELS else ()
    named = (dict(zip(models, order, strict=True)) for order in orders)
    return next((one for one in named if fingerprint_of(one) == fingerprint), models)


def _shown(prescription: Prescription, subject: Subject) -> Iterator[Dose]:
    """What is for modules that are here. A loss has no parameters to know it by, and who applies may not show it."""
    for dose in doses_of((dose.treatment, dose.sites) for dose in prescription.doses):
        sites = tuple(site for site in dose.sites if not _is_of_loss(site, prescription, subject))
        if sites:
            yield Dose(dose.treatment, sites)


def _is_of_loss(site: str, prescription: Prescription, subject: Subject) -> bool:
    """Models with parameters have the first names."""
    root = site.partition(":")[0]
    number = _ROOT.fullmatch(root)
    if number is None or prescription.models is None or root in subject.models:
        return False
    return int(number[1]) >= prescription.models


_ROOT = re.compile(r"model(\d{1,3})")


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

    shown = sum(not is_bare(model) for model in subject.models.values())
    for what, was, here in (
        ("model", prescription.model, fingerprint_of(subject.models)),
        ("torch", prescription.torch, torch.__version__),
        ("device", prescription.device, identify(subject.device).name),
    ):
        if was != here and what == "model" and prescription.models not in (None, shown):
            raise BadInput(
                f"models given: {shown}, the prescription is for a step of {prescription.models}: "
                "gobrrr.apply(..., [model, ...], [optimizer, ...])"
            )
        if was != here:
            raise BadInput(f"the prescription is for another {what} ({was}, here {here}): run gobrrr treat again")
    if differ(prescription.code, digest_of(subject.models.values())):
        raise BadInput(
            "the model's forward, or one of a part of it, was another when it was treated: run gobrrr treat again"
        )
