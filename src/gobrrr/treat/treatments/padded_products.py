"""Linear layers of an odd number of outputs padded to a number that matrix units like, and their results cut back."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment

if TYPE_CHECKING:
    import torch

ALIGNED = 8
"""Elements at multiples of which rows have to begin."""

TO = 64

LARGE = 1 << 20
"""Elements of a weight from which on a copy of it each step is little beside what it multiplies."""

LIKELY = 0.9
"""Of what is at stake: the copies take the rest."""


@treatment(
    "padded-products",
    "odd output sizes padded",
    stage=Stage.STRUCTURE,
    by_hand="""
    from functools import partial

    from torch.nn.functional import linear, pad


    def padded(layer, x):
        extra = -layer.out_features % 64
        weight = pad(layer.weight, (0, 0, 0, extra))
        bias = None if layer.bias is None else pad(layer.bias, (0, extra))
        return linear(x, weight, bias)[..., : layer.out_features]


    for name in $names:  # or choose sizes that 64 divides
        layer = $model.get_submodule(name)
        layer.forward = partial(padded, layer)
    """,
)
class PaddedProducts:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("a CPU does not mind odd sizes")
        found = tuple(name for name, module in chart.subject.modules() if is_odd(module))
        if not found:
            raise Unfit("it has no large linear layer of an odd size")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        most_s = chart.device_s_of("B302")
        return chart.forecast(device_s=LIKELY * most_s, most_device_s=most_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            module = subject.module(site)
            yield attribute(module, "forward", partial(padded_forward, module))


def is_odd(module: object) -> bool:
    import torch

    return type(module) is torch.nn.Linear and module.out_features % ALIGNED != 0 and module.weight.numel() >= LARGE


def padded_forward(module: Any, input: "torch.Tensor") -> "torch.Tensor":  # noqa: A002 (torch's name)
    """The parameter stays what it is, for optimizers, ties and checkpoints; rows of zeros are added as it is used."""
    from torch.nn.functional import linear, pad

    extra = -module.out_features % TO
    bias = None if module.bias is None else pad(module.bias, (0, extra))
    return linear(input, pad(module.weight, (0, 0, 0, extra)), bias)[..., : module.out_features]
