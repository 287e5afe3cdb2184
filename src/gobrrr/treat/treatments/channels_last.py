"""Images with their channels last, as convolution kernels want them: no reordering before and after each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gobrrr.treat.by_hand import optimizer_name
from gobrrr.treat.chart import Chart
from gobrrr.treat.convolution import convolutions, poolings, seconds_by_layout
from gobrrr.treat.edit import Edit, after_loading, strided, when_saved
from gobrrr.treat.in_place import at_work
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.work.op import Op, OpClass

SHARE = 0.2
"""Of busy time in convolutions, at the least."""

LIKELY, MOST = 0.15, 0.4
"""Of the convolutions' time, where they cannot be timed alone, and where what is between them gains too: a median of
1.08 and a 95th percentile of 1.25 of whole models on an RTX 3090."""


@treatment(
    "channels-last",
    "channels last",
    stage=Stage.LAYOUT,
    moves=True,
    by_hand="""
    import torch

    $model.to(memory_format=torch.channels_last)
    $moments
    """,
    fills=lambda subject, _: {"moments": "\n".join(map(_moments, range(len(subject.optimizers))))},
)
class ChannelsLast:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        found = tuple(name for name, module in chart.subject.modules() if _is_convolution(module))
        if not found:
            raise Unfit("it has no two-dimensional convolution in the usual layout")
        if sum(one.seconds for one in chart.kernels(_convolves)) < SHARE * chart.case.busy_s:
            raise Unfit("convolutions take little of its time")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """As much faster as convolutions and poolings are alone, in the other layout: what the ones gain the others may
        lose.
        """
        subject, trains = chart.subject, chart.trains
        took_s = sum(one.seconds for one in chart.kernels(_convolves))
        gained = _gained(seconds_by_layout(convolutions(subject, sites, trains=trains), subject.device), LIKELY)
        pooled = _gained(seconds_by_layout(poolings(subject, trains=trains), subject.device), 0.0)
        pooled_s = pooled * sum(one.seconds for one in chart.kernels(_pools))
        likely_s, most_s = (max(0.0, share * took_s + pooled_s) for share in (gained, max(gained, MOST)))
        return chart.forecast(device_s=likely_s, most_device_s=most_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Weights, and what an optimizer keeps of them: a fused one asks for one layout. Not the images: a convolution
        gives its result in the layout of either operand.
        """
        import torch

        weights: list[Any] = [at_work(subject.module(site)).weight for site in sites]
        untreated = {weight: weight.stride() for weight in weights}
        for optimizer in subject.optimizers:
            yield after_loading(optimizer, partial(_follow, weights, subject))
            yield when_saved(optimizer, partial(_saved_as_they_were, untreated))
        for weight in weights:
            last = torch.empty_like(weight, device="meta", memory_format=torch.channels_last)
            yield strided(partial(_belonging, weight, subject), last.stride())


def _moments(place: int) -> str:
    """Code that lays them as the weights: a fused optimizer asks for one layout."""
    return (
        f"for parameter, state in {optimizer_name(place)}.state.items():\n"
        "    for key, value in state.items():\n"
        "        if torch.is_tensor(value) and value.shape == parameter.shape:\n"
        "            state[key] = torch.empty_like(parameter).copy_(value)"
    )


def _follow(weights: list[Any], subject: Subject, _optimizer: Any) -> None:
    for weight in weights:
        for tensor in _belonging(weight, subject):
            if tensor.stride() != weight.stride():
                tensor.data = tensor.new_empty_strided(tensor.shape, weight.stride()).copy_(tensor.data)


def _saved_as_they_were(untreated: dict[Any, tuple[int, ...]], optimizer: Any, saved: dict[str, Any]) -> None:
    """In the layout of untreated weights: loaded, moments keep the one that they have, and a fused kernel on a CPU
    takes it for the weight's.
    """
    for group, packed in zip(optimizer.param_groups, saved["param_groups"], strict=True):
        for parameter, number in zip(group["params"], packed["params"], strict=True):
            if parameter in untreated and number in saved["state"]:
                kept = saved["state"][number].items()
                saved["state"][number] = {key: _laid(one, parameter, untreated[parameter]) for key, one in kept}


def _laid(kept: Any, weight: Any, stride: tuple[int, ...]) -> Any:
    """A moment in this layout, a copy if need be; whatever else is kept as it is."""
    import torch

    if not isinstance(kept, torch.Tensor) or kept.shape != weight.shape or kept.stride() == stride:
        return kept
    return kept.new_empty_strided(kept.shape, stride).copy_(kept)


def _belonging(weight: Any, subject: Subject) -> list[Any]:
    """The weight, its gradient and moments, as far as they are there by now."""
    import torch

    kept = [one for optimizer in subject.optimizers for one in optimizer.state.get(weight, {}).values()]
    found = (weight, weight.grad, *kept)
    return [one for one in found if isinstance(one, torch.Tensor) and one.shape == weight.shape]


def _is_convolution(module: object) -> bool:
    import torch

    if not isinstance(module, torch.nn.Conv2d) or 0 in module.weight.stride():  # of one number in many places
        return False
    return not at_work(module).weight.is_contiguous(memory_format=torch.channels_last)


def _gained(by_layout: tuple[float, float] | None, unless: float) -> float:
    """Of their time, if they could be timed alone; less than nothing where they take longer."""
    return unless if by_layout is None else 1 - by_layout[1] / by_layout[0]


def _pools(op: Op) -> bool:
    return "pool" in op.name


def _convolves(op: Op) -> bool:
    return op.cls is OpClass.CONTRACTION and "conv" in op.name
