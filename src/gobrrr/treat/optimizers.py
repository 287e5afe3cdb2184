"""Optimizers as treatments change them: their flags, their counts of steps and their rates, each an edit."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from numbers import Real
from typing import TYPE_CHECKING, Any

from gobrrr.treat.edit import Edit, attribute, flag, number
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Unfit

if TYPE_CHECKING:
    import torch

FUSED = {"fused": True, "foreach": False}

HAVE_A_FUSED_FORM = ("Adam", "AdamW", "SGD", "Adagrad")
"""Of torch.optim, on CPU and CUDA."""


def optimizers_at(subject: Subject, sites: Sequence[str]) -> "list[torch.optim.Optimizer]":
    """Sites are their places among all of the subject's."""
    wanted, given = max(map(int, sites)) + 1, len(subject.optimizers)
    if given < wanted:
        how = "optimizer" if wanted == 1 else "[optimizer, ...]"
        raise Unfit(f"it is for {wanted} optimizers, and {given} were given: gobrrr.apply(..., model, {how})")
    return [subject.optimizers[int(site)] for site in sites]


def places_of(subject: Subject, fit: Callable[[Any], bool], unfit: str) -> tuple[str, ...]:
    """Of the optimizers that are fit."""
    if not subject.optimizers:
        raise Unfit("nothing is optimized")
    found = tuple(str(place) for place, one in enumerate(subject.optimizers) if fit(one))
    if not found:
        raise Unfit(unfit)
    return found


def is_fused(optimizer: Any) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


def can_be_fused(optimizer: object) -> bool:
    """One of torch's own, on floating parameters, that is not so already."""
    import torch

    if type(optimizer).__name__ not in HAVE_A_FUSED_FORM or not isinstance(optimizer, torch.optim.Optimizer):
        return False
    if type(optimizer).__module__ != f"torch.optim.{type(optimizer).__name__.lower()}":
        return False
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    plain = all(not group.get("fused") and not group.get("differentiable") for group in groups)
    return plain and all(p.is_floating_point() and p.layout is torch.strided for p in parameters)


def flags(optimizer: Any, values: Mapping[str, bool]) -> Iterator[Edit]:
    """Of each group of parameters."""
    for place in range(len(optimizer.param_groups)):
        yield from (flag(optimizer, place, key, value=value) for key, value in values.items())


def steps_on_device(optimizer: Any) -> Iterator[Edit]:
    """Counts of steps where the parameters are: a fused kernel reads them there."""
    import torch

    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, torch.Tensor) and step.device != parameter.device:
            count = torch.zeros((), dtype=torch.float32, device=parameter.device)
            yield number(partial(_itself, state), "step", count)


def capturable(optimizer: Any) -> Iterator[Edit]:
    """What changes from step to step lies on the device: who has captured or compiled a step reads it there."""
    for place, group in enumerate(optimizer.param_groups):
        if "capturable" in group:
            yield flag(optimizer, place, "capturable", value=True)
    yield attribute(optimizer, "_warned_capturable_if_run_uncaptured", value=True)
    yield from steps_on_device(optimizer)


def other_settings(optimizer: Any) -> list[object]:
    """Besides rates. A tensor is known by what it is: what is in it is read anew. Notes of schedules do not count."""
    numbers = [group.get(key) for group in optimizer.param_groups for key in optimizer.defaults if key != "lr"]
    return [one if isinstance(one, bool | int | float | str | tuple | None) else id(one) for one in numbers]


# **** rates ****


def rates_in_tensors(optimizer: Any) -> Iterator[Edit]:
    """Where compiled and captured code reads them anew in every step."""
    import torch

    for place, group in enumerate(optimizer.param_groups):
        if isinstance(group.get("lr"), Real) and group["params"]:
            first = group["params"][0]
            dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
            tensor = torch.zeros((), dtype=dtype, device=first.device)
            yield number(partial(_group, optimizer, place), "lr", tensor)


def _itself(state: dict[str, Any]) -> dict[str, Any]:
    return state


def _group(optimizer: Any, place: int) -> dict[str, Any]:
    """Of parameters; an optimizer that has loaded has others."""
    return optimizer.param_groups[place]  # type: ignore[no-any-return]


class Rates:
    """An optimizer's, in the tensors that they are in now. Many a script sets a rate as a number."""

    def __init__(self, optimizer: Any) -> None:
        import torch

        rates = [group.get("lr") for group in optimizer.param_groups]
        self.optimizer, self.tensors = optimizer, [one if isinstance(one, torch.Tensor) else None for one in rates]

    def heed(self) -> None:
        """Whatever rate was put in the place of a tensor, a number or another tensor, becomes the tensor's own."""
        for group, tensor in zip(self.optimizer.param_groups, self.tensors, strict=False):
            if tensor is not None and group["lr"] is not tensor:
                tensor.fill_(float(group["lr"]))
                group["lr"] = tensor
