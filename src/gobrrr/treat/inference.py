"""What is made for inference computes with numbers made of the parameters as they were: it ends where they change."""

import warnings
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from copy import deepcopy
from typing import TYPE_CHECKING, Any

from gobrrr.errors import BadInput
from gobrrr.treat.edit import Edit, attribute, swap_off, swap_on
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Plan

if TYPE_CHECKING:
    import torch

CHANGES = {"train": "is trained", "_load_from_state_dict": "is given other weights"}
"""Methods of a module that come before its parameters change, called for every part of a model."""


def refuse_training(subject: Subject, plan: Plan) -> None:
    """Whatever is for inference, where somebody trains."""
    for dose in plan:
        if dose.treatment.inference:
            modules = [module for site in dose.sites for module in subject.modules_at(site)]
            own = {id(parameter) for module in modules for parameter in module.parameters()}
            held = {id(one) for optimizer in subject.optimizers for one in optimized(optimizer)}
            if own & held or any(module.training for module in modules):
                raise BadInput(
                    f"{dose.treatment.name} is for inference, and this model trains: model.eval(), no optimizer"
                )


def optimized(optimizer: Any) -> "list[torch.Tensor]":
    return [parameter for group in optimizer.param_groups for parameter in group["params"]]


def guarded(subject: Subject, plan: Plan) -> Callable[[], None]:
    """Undoes what is in force, and does so by itself as soon as the model is trained or loads other weights."""
    sites = {site for dose in plan if dose.treatment.inference for site in dose.sites}
    modules = {id(module): module for site in sites for module in subject.modules_at(site)}
    guards: list[Edit] = []

    def undo() -> None:
        swap_off(guards)
        subject.end()

    guards += swap_on(_guards(modules.values(), undo))
    return undo


def _guards(modules: "Iterable[torch.nn.Module]", undo: Callable[[], None]) -> Iterable[Edit]:
    for module in modules:
        for method in CHANGES:
            ends = ExitStack()  # which nobody who looks for the user's own looks into
            ends.callback(undo)
            yield attribute(module, method, Guard(module, method, ends))


class Guard:
    """In the place of a module's method: what is in force ends, and the method goes on."""

    def __init__(self, module: "torch.nn.Module", method: str, ends: ExitStack | None) -> None:
        self.module, self.method, self.ends = module, method, ends

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.method != "train" or (*args, *kwargs.values(), True)[0]:
            self._leave()
        return getattr(type(self.module), self.method)(self.module, *args, **kwargs)

    def _leave(self) -> None:
        changes = CHANGES[self.method]
        if self.ends is None:
            raise BadInput(f"a copy of a model that is treated for inference {changes}: copy it before it is treated")
        self.ends.close()
        warnings.warn(f"the model {changes}: what was prescribed for inference is undone", stacklevel=3)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Guard":
        return Guard(deepcopy(self.module, memo), self.method, None)

    def __reduce__(self) -> Any:
        return Guard, (self.module, self.method, None)
