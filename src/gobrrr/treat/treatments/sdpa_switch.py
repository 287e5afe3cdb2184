"""Attention by one fused kernel, where a model has a switch for it."""

from collections.abc import Iterator
from functools import partial
from typing import Any

from gobrrr.treat.attention_gain import attention_forecast
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment


@treatment(
    "sdpa-switch",
    "attention by scaled_dot_product_attention",
    stage=Stage.STRUCTURE,
    group="attention",
    by_hand="""
    $model.set_attn_implementation("sdpa")  # transformers
    """,
)
class SdpaSwitch:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        found = tuple(f"{root}:" for root, model in chart.subject.models.items() if is_eager(model))
        if not found:
            raise Unfit("no model of it has a switch for attention that stands on eager")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        return attention_forecast(chart)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            model: Any = subject.module(site)
            yield Edit(partial(_implementation, model), model.set_attn_implementation, "sdpa")


def _implementation(model: Any) -> str | None:
    return getattr(getattr(model, "config", None), "_attn_implementation", None)


def is_eager(model: Any) -> bool:
    """And could be otherwise: transformers notes of each architecture whether it can."""
    able = hasattr(model, "set_attn_implementation") and getattr(model, "_supports_sdpa", True)
    return able and _implementation(model) == "eager"
