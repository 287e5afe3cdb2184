"""torch.compile over whole models, attention called as eager calls it."""

from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.treat.attention import made_one_call, masks_named
from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import Pass, as_eager, compiled, eager_attention, inductor_after
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.fusing import fit_to_compile, fused_forecast
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, treatment


@treatment(
    "compile",
    "torch.compile, whole model",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand="""
    model.compile()  # in place: names of parameters stay
    """,
)
class CompileWhole:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart)
        return whole_sites(chart.subject)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        return fused_forecast(chart, calls=len(sites), pads=True)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        calls = eager_attention(subject)
        passes: list[Pass] = [as_eager(calls)] if calls else []
        backend = inductor_after(made_one_call, masks_named, *passes)
        yield from compiled_sites(subject, sites, backend)


def whole_sites(subject: Subject) -> tuple[str, ...]:
    """All models; where there is none, the step itself."""
    return tuple(f"{root}:" for root in subject.models) or ("step",)


def compiled_sites(subject: Subject, sites: tuple[str, ...], backend: Callable[..., Any]) -> Iterator[Edit]:
    import torch

    for site in sites:
        if site == "step":
            yield attribute(subject, "step", torch.compile(subject.step, backend=backend))
        else:
            yield compiled(subject.module(site), backend=backend)
