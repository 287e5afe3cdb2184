"""The roofline as a picture of its own, for a document or a comment."""

from typing import Any

from gobrrr.extras import need
from gobrrr.report.bubbles import roofline_view
from gobrrr.report.charts.base import Spec, config
from gobrrr.report.charts.roofline import roofline as chart
from gobrrr.report.colours import LIGHT
from gobrrr.report.examined import Examined
from gobrrr.report.plain import capital
from gobrrr.report.view import step_view

WIDTH = 900
SCALE = 2


def roofline(examined: Examined) -> Spec:
    """The chart with everything in it, as a notebook or a converter wants it."""
    view = step_view(examined.diagnosis)
    placed = roofline_view(examined.exam, view.ops)
    told = f"no roofline: {placed.missing}" if placed.missing else placed.note
    return {
        **chart(placed, view.ops),
        **({} if told is None else {"title": {"text": capital(told), "fontWeight": "normal", "color": LIGHT.muted}}),
        "width": WIDTH,
        "config": {**config(), "background": LIGHT.card},
    }


def svg(examined: Examined) -> str:
    text: str = _converter().vegalite_to_svg(roofline(examined))
    return text


def png(examined: Examined) -> bytes:
    data: bytes = _converter().vegalite_to_png(roofline(examined), scale=SCALE)
    return data


def _converter() -> Any:
    return need("vl_convert", "html")
