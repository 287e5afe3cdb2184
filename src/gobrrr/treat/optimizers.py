"""Optimizers as treatments change them: their flags, their counts of steps and their rates, each an edit."""

import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import ExitStack, contextmanager
from numbers import Real
from typing import TYPE_CHECKING, Any

from gobrrr.treat.edit import Edit, attribute, flag, number, when_saved
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
        raise Unfit(f"optimizers given: {given}, it is for {wanted}: gobrrr.apply(..., model, {how})")
    return [subject.optimizers[int(site)] for site in sites]


def places_of(subject: Subject, fit: Callable[[Any, Subject], bool], unfit: str) -> tuple[str, ...]:
    """Of the optimizers that are fit."""
    if not subject.optimizers:
        raise Unfit("nothing is optimized")
    found = tuple(str(place) for place, one in enumerate(subject.optimizers) if fit(one, subject))
    if not found:
        raise Unfit(unfit)
    return found


def is_fused(optimizer: Any) -> bool:
    return all(group.get("fused") for group in optimizer.param_groups)


def can_be_fused(optimizer: object, subject: Subject) -> bool:
    """One of torch's own, on floating parameters with dense gradients, that is not so already."""
    import torch

    if type(optimizer).__name__ not in HAVE_A_FUSED_FORM or not isinstance(optimizer, torch.optim.Optimizer):
        return False
    if type(optimizer).__module__ != f"torch.optim.{type(optimizer).__name__.lower()}":
        return False
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    plain = all(not group.get("fused") and not group.get("differentiable") for group in groups)
    dense = all(p.is_floating_point() and p.layout is torch.strided for p in parameters)
    return plain and dense and not has_sparse_gradients(optimizer, subject)


def has_sparse_gradients(optimizer: Any, subject: Subject) -> bool:
    """By what is there, and by what a module says of those to come."""
    announcing = [module for _, module in subject.modules() if getattr(module, "sparse", False) is True]
    tables = {id(getattr(module, "weight", None)) for module in announcing}
    parameters = (parameter for group in optimizer.param_groups for parameter in group["params"])
    return any(id(one) in tables or (one.grad is not None and one.grad.is_sparse) for one in parameters)


def flags(optimizer: Any, values: Mapping[str, bool]) -> Iterator[Edit]:
    """Of each group of parameters."""
    for place in range(len(optimizer.param_groups)):
        yield from (flag(optimizer, place, key, value=value) for key, value in values.items())


def steps_on_device(optimizer: Any) -> Iterator[Edit]:
    """Counts of steps where the parameters are: a fused kernel reads them there."""
    import torch

    for parameter, state in optimizer.state.items():
        for key, count in _counts(state):
            if count.device != parameter.device:
                dtype = torch.float32 if key == "step" else count.dtype  # as fused kernels read it
                yield number(state, key, torch.zeros((), dtype=dtype, device=parameter.device))


COUNTS = ("step", "mu_product")
"""Of torch's own: numbers that change with every step, and lie on the host unless a graph has to read them."""


def _counts(state: Mapping[str, Any]) -> "list[tuple[str, torch.Tensor]]":
    import torch

    return [(key, state[key]) for key in COUNTS if isinstance(state.get(key), torch.Tensor)]


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


# **** what is saved ****

FLAGS = ("fused", "foreach", "capturable")


def saved_as_it_was(optimizer: Any) -> Edit:
    """What it gives out while it is treated is what it would give out untreated: with the flags that it has now, and
    counts of steps where those want them.
    """
    own, begun = [_flags(group) for group in optimizer.param_groups], _flags(optimizer.defaults)

    def hook(_optimizer: Any, saved: dict[str, Any]) -> None:
        for place, group in enumerate(saved["param_groups"]):
            group.update(own[place] if place < len(own) else begun)
            if _counts_on_host(optimizer, group):
                saved["state"].update(_on_host(saved["state"], group["params"]))

    return when_saved(optimizer, hook)


def _flags(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: group[key] for key in FLAGS if key in group}


def _counts_on_host(optimizer: object, group: Mapping[str, Any]) -> bool:
    """As torch's own do, but for one: who has none of these flags keeps them where he likes."""
    asked = [group[key] for key in ("fused", "capturable") if key in group]
    return bool(asked) and not any(asked) and type(optimizer).__name__ != "ASGD"


def _on_host(states: Mapping[Any, Any], numbers: Sequence[int]) -> Iterator[tuple[int, dict[str, Any]]]:
    """States of the parameters with these numbers whose counts are elsewhere, with copies of those."""
    for place in numbers:
        state = states.get(place, {})
        moved = {key: count.cpu() for key, count in _counts(state) if count.device.type != "cpu"}
        if moved:
            yield place, {**state, **moved}


# **** rates ****


class Rate:
    """Of a group of parameters, beside a tensor that compiled and captured code reads it from."""

    def __init__(self, group: Mapping[str, Any]) -> None:
        import torch

        first = group["params"][0]
        dtype = torch.float64 if first.dtype == torch.float64 else torch.float32
        self.tensor = torch.zeros((), dtype=dtype, device=first.device)
        self.poured: object = None

    def pour(self, rate: Any) -> None:
        """Whatever it is now. A tensor of the program's own is not written into, for groups may share it; nor read by a
        graph, for on the host it would be a number for ever.
        """
        import torch

        if isinstance(rate, torch.Tensor):
            self.tensor.copy_(rate.detach().reshape(()))
        else:
            self.tensor.fill_(float(rate))

    def heed(self, rate: Any) -> None:
        """Where nobody else writes into the tensor, a number that is there already costs no kernel."""
        if not isinstance(rate, Real) or rate != self.poured:
            self.pour(rate)
        self.poured = rate

    @contextmanager
    def in_tensor(self, group: MutableMapping[str, Any]) -> Iterator[None]:
        """Afterwards it is what it was, unless the optimizer itself has changed it."""
        was = group["lr"]
        self.pour(was)
        group["lr"], version = self.tensor, self.tensor._version  # noqa: SLF001 (torch documents it)
        try:
            yield
        finally:
            now = group["lr"]
            group["lr"] = was
            if now is not self.tensor or self.tensor._version != version:  # noqa: SLF001
                _set_rate(group, float(now))


def _set_rate(group: MutableMapping[str, Any], rate: float) -> None:
    """In what is there."""
    import torch

    if isinstance(group["lr"], torch.Tensor):
        group["lr"].detach().fill_(rate)
    else:
        group["lr"] = rate


class Rates:
    """An optimizer's. A program finds them as it has set them: numbers that come back from tensors are rounded,
    schedules would go on from those, and who saves or logs a rate expects a number.
    """

    def __init__(self, optimizer: Any) -> None:
        self.optimizer = optimizer
        self.rates = [Rate(group) if _has_a_rate(group) else None for group in optimizer.param_groups]

    def heed(self) -> None:
        """What is set now is what a replay reads."""
        for group, rate in self._by_group():
            rate.heed(group["lr"])

    @contextmanager
    def in_tensors(self) -> Iterator[None]:
        """While a step is captured, or runs compiled."""
        with ExitStack() as stack:
            for group, rate in self._by_group():
                stack.enter_context(rate.in_tensor(group))
            yield

    def _by_group(self) -> list[tuple[dict[str, Any], Rate]]:
        """Groups of now: an optimizer that has loaded has others, and one may have got more."""
        groups = self.optimizer.param_groups
        self.rates += [Rate(group) if _has_a_rate(group) else None for group in groups[len(self.rates) :]]
        return [(group, rate) for group, rate in zip(groups, self.rates, strict=False) if rate is not None]


def _has_a_rate(group: Mapping[str, Any]) -> bool:
    import torch

    return bool(group["params"]) and isinstance(group.get("lr"), Real | torch.Tensor)


def has_begun(optimizer: Any) -> bool:
    """It has what it keeps for each parameter, if it keeps anything."""
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    return all(optimizer.state.get(parameter) for parameter in parameters)


class Gradients:
    """An optimizer's. A compiler knows each by the tensor object that it is, and one that is made anew for every step
    would be another program: while a compiled step runs, all lie in tensors that stay, unless somebody keeps one.
    """

    def __init__(self, optimizer: Any) -> None:
        import torch
        from torch.utils.weak import WeakTensorKeyDictionary

        self.optimizer = optimizer
        self.standing: Any = WeakTensorKeyDictionary()
        alone = torch.empty(0)
        self.standing[alone] = torch.empty(0)
        self.references = self._references(alone)
        """To one that nobody else holds."""

    @contextmanager
    def in_tensors_that_stay(self) -> Iterator[None]:
        """Afterwards they are the program's, and no memory of theirs is held by us."""
        each = dict.fromkeys(one for group in self.optimizer.param_groups for one in group["params"])
        own = [(one, one.grad) for one in each]
        dense = [(one, gradient) for one, gradient in own if gradient is not None and is_strided(gradient)]
        try:
            for parameter, gradient in dense:
                parameter.grad = self._holding(parameter, gradient)
            yield
        finally:
            for parameter, gradient in dense:
                if parameter.grad is self.standing[parameter]:
                    parameter.grad = gradient
                if self._references(parameter) > self.references:
                    del self.standing[parameter]
                else:
                    self.standing[parameter].data = gradient.data.new_empty(0)

    def _references(self, parameter: "torch.Tensor") -> int:
        return sys.getrefcount(self.standing[parameter])

    def _holding(self, parameter: "torch.Tensor", gradient: "torch.Tensor") -> "torch.Tensor":
        held: torch.Tensor | None = self.standing.get(parameter)
        if held is None or (held.dtype, held.device) != (gradient.dtype, gradient.device):
            held = self.standing[parameter] = gradient.detach()
        held.data = gradient.data
        return held


def is_strided(tensor: "torch.Tensor") -> bool:
    import torch

    return tensor.layout is torch.strided
