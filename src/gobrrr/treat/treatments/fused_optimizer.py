"""A fused optimizer: one pass over parameters, gradients and state instead of a dozen."""

from collections.abc import Iterator, Mapping
from typing import Any

from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.edit import Edit, after_loading, attribute, flag, number, swap_on
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.work.op import Phase

FLAGS = {"fused": True, "foreach": False}

FUSED = ("Adam", "AdamW", "SGD", "Adagrad")
"""Of torch.optim, those that have it on CPU and CUDA."""


@treatment(
    "fused-optimizer",
    "fused optimizer",
    stage=Stage.OPTIMIZER,
    by_hand="""
    # the optimizer that you have, with one argument more
    optimizer = torch.optim.AdamW(model.parameters(), ..., fused=True)
    """,
)
class FusedOptimizer:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.subject.optimizers:
            raise Unfit("nothing is optimized")
        found = [str(place) for place, one in enumerate(chart.subject.optimizers) if can_be_fused(one)]
        if not found:
            raise Unfit("the optimizer is fused already, or has no fused form")
        return tuple(found)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """To one pass at the bandwidth that such kernels reach, asked for by a handful of calls."""
        del sites
        kernels = chart.kernels(lambda op: op.phase is Phase.OPTIMIZER)
        took_s = sum(one.seconds for one in kernels)
        groups = () if chart.case.fused is None else chart.case.fused.groups
        phases = [(one.seconds or 0.0, {chart.ops[op].phase for op in one.group.ops}) for one in groups]
        floor_s = min(took_s, sum(seconds for seconds, phase in phases if phase == {Phase.OPTIMIZER}))
        asking_s = sum(op.phase is Phase.OPTIMIZER for op in chart.ops) * chart.case.op_s
        return chart.forecast(
            device_s=max(0.0, took_s - floor_s / REACHED), host_s=asking_s, most_device_s=took_s - floor_s
        )

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        wanted, given = max(map(int, sites)) + 1, len(subject.optimizers)
        if given < wanted:
            how = "optimizer" if wanted == 1 else "[optimizer, ...]"
            raise Unfit(f"it is for {wanted} optimizers, and {given} were given: gobrrr.apply(..., model, {how})")
        for optimizer in (subject.optimizers[int(site)] for site in sites):
            if all(group.get("fused") for group in optimizer.param_groups):
                continue  # where it is applied, somebody has done so
            if not can_be_fused(optimizer):
                raise Unfit(f"{type(optimizer).__name__} has no fused form")
            yield from flags(optimizer, FLAGS)
            yield _groups_to_come(optimizer)
            yield attribute(optimizer, "_step_supports_amp_scaling", value=True)
            yield from steps_on_device(optimizer)
            yield after_loading(optimizer, _stay_fused)


def flags(optimizer: Any, values: Mapping[str, bool]) -> Iterator[Edit]:
    """Of each group of parameters."""
    for place in range(len(optimizer.param_groups)):
        yield from (flag(optimizer, place, key, value=value) for key, value in values.items())


def _groups_to_come(optimizer: Any) -> Edit:
    """What groups that are added later begin with; undone, it is taken from those too."""
    number, wanted = len(optimizer.param_groups), {key: FLAGS[key] for key in FLAGS.keys() & optimizer.defaults.keys()}

    def write(values: Mapping[str, Any]) -> None:
        for begun in (optimizer.defaults, *optimizer.param_groups[number:]):
            begun.update(values)

    return Edit(lambda: {key: optimizer.defaults[key] for key in wanted}, write, wanted)


def _stay_fused(optimizer: Any) -> None:
    for group in optimizer.param_groups:
        group.update(FLAGS)
    swap_on(steps_on_device(optimizer))


def can_be_fused(optimizer: object) -> bool:
    """One of torch's own, on floating parameters, that is not so already."""
    import torch

    if type(optimizer).__name__ not in FUSED or not isinstance(optimizer, torch.optim.Optimizer):
        return False
    if type(optimizer).__module__ != f"torch.optim.{type(optimizer).__name__.lower()}":
        return False
    groups = optimizer.param_groups
    parameters = [parameter for group in groups for parameter in group["params"]]
    plain = all(not group.get("fused") and not group.get("differentiable") for group in groups)
    return plain and all(p.is_floating_point() and p.layout is torch.strided for p in parameters)


def steps_on_device(optimizer: Any) -> Iterator[Edit]:
    """Counts of steps where the parameters are: a fused kernel reads them there."""
    import torch

    for parameter, state in optimizer.state.items():
        step = state.get("step")
        if isinstance(step, torch.Tensor) and step.device != parameter.device:
            yield number(state, "step", torch.zeros((), dtype=torch.float32, device=parameter.device))
