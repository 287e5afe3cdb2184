"""Linear layers in int8 on a CPU: weights quantized once, activations as they come."""

import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.in_place import InPlace, has_own_weight
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Numerics, Stage, Unfit, treatment
from gobrrr.work.op import OpClass

if TYPE_CHECKING:
    from torch import nn

LIKELY, MOST = 0.4, 0.75
"""Of the products' time: 1.7x of a whole BERT on a CPU with AVX2, four times the rate at the most."""


@treatment(
    "int8-dynamic",
    "int8 products, activations quantized as they come",
    stage=Stage.PRECISION,
    group="int8",
    numerics=Numerics.QUANTIZED,
    allow="int8",
    inference=True,
    by_hand="""
    import torch
    from torch.ao.quantization import quantize_dynamic

    layers = set($names)
    quantize_dynamic($model, layers, dtype=torch.qint8, inplace=True)
    """,
)
class Int8Dynamic:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        import torch

        if chart.trains or chart.subject.device != "cpu":
            raise Unfit("only for inference on a CPU")
        layers = {name: module for name, module in chart.subject.modules() if type(module) is torch.nn.Linear}
        linears = {name: module for name, module in layers.items() if has_own_weight(module)}
        found = tuple(
            name for name, module in linears.items() if module.weight.dtype == torch.float32 and name[-1] != ":"
        )
        if not found:
            raise Unfit("it has no linear layer in fp32")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """Generated kernels do not always say that they multiply: where none does, all of them may."""
        named = chart.kernels(lambda op: op.cls is OpClass.CONTRACTION)
        took_s = sum(one.seconds for one in chart.products_of(sites)) if named else chart.case.busy_s
        return chart.forecast(device_s=LIKELY * took_s, most_device_s=MOST * took_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            layer = subject.module(site)
            yield attribute(layer, "forward", InPlace(quantized(layer)))


def quantized(linear: "nn.Module") -> "nn.Module":
    """By torch.ao, whose deprecation says what will come later."""
    import torch
    from torch.ao.quantization import quantize_dynamic

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        holder = quantize_dynamic(torch.nn.Sequential(linear), {torch.nn.Linear}, dtype=torch.qint8)  # type: ignore[no-untyped-call]
    return holder[0]  # type: ignore[no-any-return]
