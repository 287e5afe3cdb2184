"""An optimizer that has no fused form, compiled: its passes over parameters, gradients and state become one."""

from collections.abc import Iterator
from typing import Any

from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import compiled_update
from gobrrr.treat.edit import Edit, after_loading, swap_on
from gobrrr.treat.fusing import compiled_host_s, fit_to_compile, is_update, one_pass_forecast
from gobrrr.treat.optimizers import (
    can_be_fused,
    capturable,
    flags,
    is_fused,
    optimizers_at,
    places_of,
    rates_in_tensors,
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
    # the optimizer that you have, with its rate in a tensor, or each other rate is compiled anew; and not dynamic, or
    # other settings stay what they were
    optimizer = torch.optim.RMSprop(model.parameters(), lr=torch.tensor(1e-3))
    optimizer.step = torch.compile(optimizer.step, dynamic=False)
    """,
)
class CompiledOptimizer:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart, is_update)
        return places_of(chart.subject, can_be_compiled, "the optimizer is fused, or can be")

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """On a CPU its kernels are one function; on a GPU a few, each for many parameters."""
        updates, calls = list(filter(is_update, chart.ops)), len(sites)
        host_s = compiled_host_s(chart, updates, kernels=calls, calls=calls, phase=Phase.OPTIMIZER)
        return one_pass_forecast(chart, host_s=host_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for optimizer in optimizers_at(subject, sites):
            yield from rates_in_tensors(optimizer)
            if subject.device.startswith("cuda"):
                yield from _at_once(optimizer)
            else:  # one function, with a loop for each
                yield from flags(optimizer, _choice(optimizer, at_once=False))
            yield from compiled_update(optimizer)


def can_be_compiled(optimizer: Any) -> bool:
    return not (is_fused(optimizer) or can_be_fused(optimizer) or type(optimizer).__name__ in UNCOMPILED)


def _at_once(optimizer: Any) -> Iterator[Edit]:
    """A GPU gets one kernel for many parameters, and numbers where it reads them; what is loaded later too."""
    yield from flags(optimizer, _choice(optimizer, at_once=True))
    yield from capturable(optimizer)
    yield after_loading(optimizer, _stay)


def _stay(optimizer: Any) -> None:
    swap_on([*flags(optimizer, _choice(optimizer, at_once=True)), *capturable(optimizer)])


def _choice(optimizer: Any, *, at_once: bool) -> dict[str, bool]:
    """Where it has one."""
    return {"foreach": at_once} if all("foreach" in group for group in optimizer.param_groups) else {}
