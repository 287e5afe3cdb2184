"""torch.compile over the whole step, attention called as eager calls it.

The step and not its model: what a model gives back and nobody reads, as the keys and values of a training step, is then
neither computed nor kept. But of a step that keeps books of its own the models: it would be another program each time.
"""

from collections.abc import Callable, Iterator
from typing import Any

from gobrrr.treat.attention import made_one_call, masks_named
from gobrrr.treat.bookkeeping import books_kept, of_the_step
from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import (
    Pass,
    as_eager,
    compiled,
    compiled_step,
    eager_attention,
    generated_otherwise,
    inductor_after,
)
from gobrrr.treat.cross_entropy import LOSS, generated_loss
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import fit_to_compile, fused_forecast, is_compiled
from gobrrr.treat.losses import and_the_loss, loss_beside
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, treatment
from gobrrr.work.op import Op

WHOLE = ("step",)

BY_HAND = """
    import torch

    # gobrrr.apply changes the graph besides: without, it may gain less, or lose
    options = $options
    $compiled
    """


@treatment(
    "compile",
    "torch.compile, whole step",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand=BY_HAND,
)
class CompileWhole:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart)
        return whole_or_models(chart)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        inside = is_compiled if sites == WHOLE else and_the_loss(chart, sites, _is_in_model)
        return fused_forecast(chart, calls=len(sites), pads=True, inside=inside)

    def edits(self, subject: Subject, sites: tuple[str, ...], *, graphs: bool = False) -> Iterator[Edit]:
        calls = eager_attention(subject) if sites == WHOLE else None
        passes: list[Pass] = [as_eager(calls)] if calls else []
        backend = inductor_after(made_one_call, masks_named, *passes, graphs=graphs)
        yield from generated_otherwise(subject.device)
        yield from compiled_sites(subject, sites, backend)


def whole_or_models(chart: Chart) -> tuple[str, ...]:
    """With the loss that is not theirs."""
    subject = chart.subject
    if subject.models and of_the_step(books_kept(subject), subject):
        models = tuple(f"{root}:" for root in subject.models)
        return (*models, *loss_beside(chart, inside=_is_in_model))
    return WHOLE


def _is_in_model(op: Op) -> bool:
    return is_compiled(op) and bool(op.module)


def compiled_sites(subject: Subject, sites: tuple[str, ...], backend: Callable[..., Any]) -> Iterator[Edit]:
    """The step, modules, or the loss."""
    for site in sites:
        if site in WHOLE:
            yield from compiled_step(subject, backend)
        elif site == LOSS:
            yield from generated_loss()
        else:
            yield from compiled(subject.module(site), backend=backend)
