"""bf16 autocast: products in bf16 over weights that stay fp32."""

from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.in_place import around
from gobrrr.treat.precision import faster_products
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Numerics, Stage, Unfit, treatment


@treatment(
    "bf16-autocast",
    "bf16 autocast",
    stage=Stage.PRECISION,
    numerics=Numerics.LOWER,
    allow="bf16",
    by_hand="""
    import torch

    autocast = torch.autocast($device_type, torch.bfloat16)
    $model.forward = autocast($model.forward)  # not the backward pass
    """,
)
class Bf16Autocast:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.subject.models:
            raise Unfit("the step has no model")
        return tuple(f"{root}:" for root in chart.subject.models)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """Half the bytes where numbers become narrower; the casts of weights take back some of it."""
        del sites
        return faster_products(chart, "bf16", moved=0.25)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            module = subject.module(site)
            kind = subject.device.partition(":")[0]
            yield attribute(module, "forward", around(module.forward, autocast, kind))


def autocast(forward: Callable[..., Any], kind: str, *args: Any, **kwargs: Any) -> Any:
    import torch

    with torch.autocast(kind, torch.bfloat16):
        return forward(*args, **kwargs)
