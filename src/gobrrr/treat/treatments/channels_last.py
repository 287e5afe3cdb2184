"""Images with their channels last, as convolution kernels want them: no reordering before and after each."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gobrrr.treat.chart import Chart
from gobrrr.treat.convolution import convolutions, seconds_by_layout
from gobrrr.treat.edit import Edit, after_loading, strided
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
    model = model.to(memory_format=torch.channels_last)
    """,
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
        """As much faster as the convolutions are alone, in the other layout."""
        took_s = sum(one.seconds for one in chart.kernels(_convolves))
        by_layout = seconds_by_layout(convolutions(chart.subject, sites, trains=chart.trains), chart.subject.device)
        gained = LIKELY if by_layout is None else max(0.0, 1 - by_layout[1] / by_layout[0])
        return chart.forecast(device_s=gained * took_s, most_device_s=max(gained, MOST) * took_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Weights, and what an optimizer keeps of them: a fused one asks for one layout. Not the images: a convolution
        gives its result in the layout of either operand.
        """
        import torch

        weights: list[Any] = [at_work(subject.module(site)).weight for site in sites]
        for optimizer in subject.optimizers:
            yield after_loading(optimizer, partial(_follow, weights, subject))
        for weight in weights:
            last = torch.empty_like(weight, device="meta", memory_format=torch.channels_last)
            yield strided(partial(_belonging, weight, subject), last.stride())


def _follow(weights: list[Any], subject: Subject, _optimizer: Any) -> None:
    for weight in weights:
        for tensor in _belonging(weight, subject):
            if tensor.stride() != weight.stride():
                tensor.data = tensor.new_empty_strided(tensor.shape, weight.stride()).copy_(tensor.data)


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


def _convolves(op: Op) -> bool:
    return op.cls is OpClass.CONTRACTION and "conv" in op.name
