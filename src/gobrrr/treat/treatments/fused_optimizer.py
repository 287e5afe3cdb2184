"""A fused optimizer: one pass over parameters, gradients and state instead of a dozen."""

from collections.abc import Iterator, Mapping
from typing import Any

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, after_loading, attribute, swap_on
from gobrrr.treat.fusing import is_update, one_pass_forecast
from gobrrr.treat.optimizers import (
    FUSED,
    can_be_fused,
    flags,
    is_fused,
    optimizers_at,
    places_of,
    saved_as_it_was,
    steps_on_device,
)
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment


@treatment(
    "fused-optimizer",
    "fused optimizer",
    stage=Stage.OPTIMIZER,
    by_hand="""
    import torch


    def fuse(optimizer):
        for group in optimizer.param_groups:
            group.update(fused=True, foreach=False)
        for parameter, state in optimizer.state.items():
            if "step" in state:  # which a fused kernel reads on the device
                count = state["step"].to(parameter.device, torch.float32)
                state["step"] = count


    fuse($optimizer)
    $optimizer.defaults.update(fused=True, foreach=False)  # groups to come
    $optimizer.register_load_state_dict_post_hook(fuse)  # saved as it was
    $optimizer._step_supports_amp_scaling = True  # a GradScaler asks
    """,
)
class FusedOptimizer:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        return places_of(
            chart.subject, can_be_fused, "the optimizer is fused already, or has no fused form for its parameters"
        )

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """Asked for by a handful of calls."""
        del sites
        asking_s = sum(map(is_update, chart.ops)) * chart.case.op_s
        return one_pass_forecast(chart, host_s=asking_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for optimizer in optimizers_at(subject, sites):
            if is_fused(optimizer):
                continue  # where it is applied, somebody has done so
            if not can_be_fused(optimizer, subject):
                raise Unfit(f"{type(optimizer).__name__} has no fused form for these parameters")
            yield saved_as_it_was(optimizer)
            yield from flags(optimizer, FUSED)
            yield _groups_to_come(optimizer)
            yield attribute(optimizer, "_step_supports_amp_scaling", value=True)
            yield attribute(optimizer, "_need_device_dtype_check_for_fused", value=True)  # until it has looked
            yield from steps_on_device(optimizer)
            yield after_loading(optimizer, _stay_fused)


def _groups_to_come(optimizer: Any) -> Edit:
    """What groups that are added later begin with; undone, it is taken from those too."""
    number, wanted = len(optimizer.param_groups), {key: FUSED[key] for key in FUSED.keys() & optimizer.defaults.keys()}

    def write(values: Mapping[str, Any]) -> None:
        for begun in (optimizer.defaults, *optimizer.param_groups[number:]):
            begun.update(values)

    return Edit(lambda: {key: optimizer.defaults[key] for key in wanted}, write, wanted)


def _stay_fused(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        group.update(FUSED)
    swap_on(steps_on_device(optimizer))
