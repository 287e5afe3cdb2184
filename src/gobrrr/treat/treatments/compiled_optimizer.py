"""An optimizer that has no fused form, compiled: its passes over parameters, gradients and state become one."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from gobrrr.treat.by_hand import optimizer_name, settings_code
from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import compiled_update
from gobrrr.treat.edit import Edit, after_loading, swap_on
from gobrrr.treat.fusing import compiled_host_s, fit_to_compile, is_update, one_pass_forecast
from gobrrr.treat.optimizers import (
    can_be_fused,
    capturable,
    flags,
    has_sparse_gradients,
    is_fused,
    optimizers_at,
    places_of,
    saved_as_it_was,
)
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, treatment
from gobrrr.work.op import Phase

UNCOMPILED = ("LBFGS", "SparseAdam")
"""Of torch.optim: they ask for the loss as often as they like, or for places that only data tell."""


@treatment(
    "compiled-optimizer",
    "optimizer compiled, where none is fused",
    stage=Stage.OPTIMIZER,
    compiles=True,
    by_hand="""
    import torch

    # rates in tensors, or each other one is compiled anew; and not dynamic,
    # or other settings stay what they were; schedulers are made first; and
    # one's own is compiled anew after zero_grad(), but for set_to_none=False
    $settings
    $optimizer.step = torch.compile($optimizer.step, dynamic=False)
    """,
    fills=lambda subject, sites: {"settings": _as_code(subject, int(sites[0]))},
)
class CompiledOptimizer:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart, is_update)
        return places_of(
            chart.subject,
            can_be_compiled,
            "the optimizer is fused or can be, or places that it changes are known by data alone",
        )

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """On a CPU its kernels are one function; on a GPU a few, each for many parameters."""
        updates, calls = list(filter(is_update, chart.ops)), len(sites)
        host_s = compiled_host_s(chart, updates, kernels=calls, calls=calls, phase=Phase.OPTIMIZER)
        return one_pass_forecast(chart, host_s=host_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for optimizer in optimizers_at(subject, sites):
            settings = partial(_settings, at_once=subject.device.startswith("cuda"))
            yield saved_as_it_was(optimizer)
            yield from settings(optimizer)
            yield after_loading(optimizer, partial(_stay, settings))
            yield from compiled_update(optimizer)


def _as_code(subject: Subject, place: int) -> str:
    flags = {"foreach": True, "capturable": True} if subject.device.startswith("cuda") else {"foreach": False}
    return settings_code(optimizer_name(place), subject.optimizers[place], subject.device, **flags)


def can_be_compiled(optimizer: Any, subject: Subject) -> bool:
    if type(optimizer).__name__ in UNCOMPILED or has_sparse_gradients(optimizer, subject):
        return False
    return not (is_fused(optimizer) or can_be_fused(optimizer, subject))


def _settings(optimizer: Any, *, at_once: bool) -> Iterator[Edit]:
    """A GPU gets one kernel for many parameters, and numbers where it reads them; a CPU one function, with a loop for
    each. Where it has the choice.
    """
    if all("foreach" in group for group in optimizer.param_groups):
        yield from flags(optimizer, {"foreach": at_once})
    if at_once:
        yield from capturable(optimizer)


def _stay(settings: Callable[[Any], Iterator[Edit]], optimizer: Any) -> None:
    swap_on(settings(optimizer))
