"""What is made for inference computes with numbers made of the parameters as they were: it ends where they change.

Not noticed are a model that is trained in evaluation mode by an optimizer that nobody has shown, and numbers that are
written into its parameters, or other parameters that are put in their place. Gradients do not reach its parameters.
"""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from copy import deepcopy
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, ref

from gobrrr.errors import BadInput
from gobrrr.treat.edit import Edit, attribute, hooked, swap_off, swap_on
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Plan

if TYPE_CHECKING:
    import torch

CHANGES = {
    "train": "is trained",
    "_load_from_state_dict": "is given other weights",
    "_apply": "is cast or moved",
}
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


_IN_FORCE: "WeakKeyDictionary[torch.nn.Module, ref[Callable[[], None]]]" = WeakKeyDictionary()
"""On a model, by what it is undone."""


def make_room(models: "Iterable[torch.nn.Module]") -> None:
    """On a model one prescription is in force: what was there before is undone."""
    for model in models:
        held = _IN_FORCE.get(model)
        undo = None if held is None else held()
        if undo is not None:
            undo()
        elif held is not None:
            raise BadInput(
                "a prescription is in force on this model, and what gobrrr.apply has returned is gone: keep that, to "
                "undo it, or make the model anew"
            )


def guarded(subject: Subject, plan: Plan) -> Callable[[], None]:
    """Undoes what is in force, and does so by itself as soon as the model is trained, moved or loads other weights."""
    sites = {site for dose in plan if dose.treatment.inference for site in dose.sites}
    modules = {id(module): module for site in sites for module in subject.modules_at(site)}
    guards: list[Edit] = []

    def undo() -> None:
        swap_off(guards)
        subject.end()
        for model in subject.models.values():
            if _IN_FORCE.get(model) == own:
                del _IN_FORCE[model]

    own = ref(undo)
    if subject.plan:
        _IN_FORCE.update(dict.fromkeys(subject.models.values(), own))
    ends = ExitStack()  # which nobody who looks for the user's own looks into
    ends.callback(undo)
    guards += swap_on(_guards(modules.values(), ends))
    roots = {site.partition(":")[0] for site in sites}
    watch = Watch(list(modules.values()), ends)
    guards += swap_on(hooked(partial(subject.models[root].register_forward_pre_hook, watch)) for root in roots)
    return undo


def _guards(modules: "Iterable[torch.nn.Module]", ends: ExitStack) -> Iterator[Edit]:
    for module in modules:
        for method in CHANGES:
            yield attribute(module, method, Guard(module, method, getattr(module, method), ends))


class Guard:
    """In the place of a module's method: what is in force ends, and the method goes on."""

    def __init__(
        self, module: "torch.nn.Module", method: str, goes_on: Callable[..., Any], ends: ExitStack | None
    ) -> None:
        self.module, self.method, self.goes_on, self.ends = module, method, goes_on, ends

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._changes(*args, **kwargs):
            leave(self.ends, CHANGES[self.method])
        return self.goes_on(*args, **kwargs)

    def _changes(self, *args: Any, **kwargs: Any) -> bool:
        """Whether this call does: into evaluation mode, or where it is already, a model goes as it is."""
        first = (*args, *kwargs.values(), True)[0]
        if self.method == "train":
            return bool(first)
        return self.method != "_apply" or any(_is_other(one.data, first(one.data)) for one in self.module.parameters())

    def __deepcopy__(self, memo: dict[int, Any]) -> "Guard":
        return Guard(deepcopy(self.module, memo), self.method, deepcopy(self.goes_on, memo), None)

    def __reduce__(self) -> Any:
        return Guard, (self.module, self.method, self.goes_on, None)


class Watch:
    """Before a model is called: some set a module's mode without telling it."""

    def __init__(self, modules: "list[torch.nn.Module]", ends: ExitStack | None) -> None:
        import torch

        self.modules, self.ends = modules, ends
        self.leave = torch.compiler.disable(leave)  # type: ignore[no-untyped-call]

    def __call__(self, _model: "torch.nn.Module", _args: Any) -> None:
        if any([module.training for module in self.modules]):  # noqa: C419 (Dynamo guards on all of them)
            self.leave(self.ends, CHANGES["train"])

    def __deepcopy__(self, memo: dict[int, Any]) -> "Watch":
        return Watch(deepcopy(self.modules, memo), None)

    def __reduce__(self) -> Any:
        return Watch, (self.modules, None)


def leave(ends: ExitStack | None, changes: str) -> None:
    """A copy has nothing to go back to."""
    if ends is None:
        raise BadInput(f"a copy of a model that is treated for inference {changes}: copy it before it is treated")
    ends.close()
    warnings.warn(f"the model {changes}: what was prescribed for inference is undone", stacklevel=3)


def _is_other(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    return (one.dtype, one.device) != (other.dtype, other.device)
