"""The roofline: ceilings over two logarithmic axes, and ops as bubbles below them."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from gobrrr.report.bubbles import RooflineView
from gobrrr.report.charts.base import RATE, Spec, by_regime, chart
from gobrrr.report.roofline import decades
from gobrrr.report.view import OpLine

HEIGHT = 460
NAMED_AT = 0.5
"""Of the way up a slope: left of it are ops that move bytes, right of it the names of roofs."""
NARROW = 460
"""Pixels: below, slopes are too steep and too close for a name."""

_ALONG_SLOPE = "-atan2(height / log(yHigh / yLow), width / log(xHigh / xLow)) * 180 / PI"


def roofline(view: RooflineView, ops: Sequence[OpLine] = ()) -> Spec:
    """Ceilings, and a bubble for each op. Whoever embeds it without ops supplies them, and says what they are."""
    x = _log_axis("x", "FLOPs per byte", (view.x_low, view.x_high), {"format": "~g"})
    y = _log_axis("y", "FLOP/s", (view.y_low, view.y_high), {"labelExpr": RATE})
    ceilings = {"values": [asdict(line) for line in view.ceilings]}
    size = {"xLow": view.x_low, "xHigh": view.x_high, "yLow": view.y_low, "yHigh": view.y_high}
    return {
        **chart(HEIGHT),
        "datasets": {"ops": _values(view, ops)},
        "params": [{"name": name, "value": value} for name, value in {**size, "picked": -1}.items()],
        "layer": [
            {"data": ceilings, **_lines(x, y)},
            {"data": ceilings, **_names_of_roofs(x, y)},
            {"data": ceilings, **_names_of_slopes(x, y)},
            {"data": {"name": "ops"}, **_reach(x, y)},
            {"data": {"name": "ops"}, **_bubbles(x, y, view.longest_s, _TOLD if ops else _PLACE)},
        ],
    }


def _values(view: RooflineView, ops: Sequence[OpLine]) -> list[dict[str, Any]]:
    """The rows of the bubbles, the longest first."""
    return [
        {"i": place, "x": bubble.x, "y": bubble.y, "c": bubble.ceiling, "s": line.seconds, "r": line.regime}
        | {"op": line.label, "of": line.of_floor}
        for place, (line, bubble) in enumerate(zip(ops, view.bubbles, strict=False))
        if bubble is not None
    ]


def _lines(x: Spec, y: Spec) -> Spec:
    """Those above an op of this step drawn through, the others dashed."""
    return {
        "mark": {"type": "rule", "strokeWidth": 1.5, "strokeCap": "round", "clip": True},
        "encoding": {
            "x": x,
            "y": y,
            "x2": {"field": "x_end"},
            "y2": {"field": "y_end"},
            "opacity": {"condition": {"test": "datum.used", "value": 1}, "value": 0.4},
            "strokeDash": {"condition": {"test": "datum.used", "value": [1, 0]}, "value": [5, 4]},
        },
    }


def _names_of_roofs(x: Spec, y: Spec) -> Spec:
    return {
        "transform": [{"filter": "!datum.slope"}],
        "mark": {
            "type": "text",
            "align": "right",
            "baseline": "bottom",
            "dy": -4,
            "text": {"expr": f"width < {NARROW} ? datum.short : datum.label"},
        },
        "encoding": {"x": {**x, "field": "x_end"}, "y": y},
    }


def _names_of_slopes(x: Spec, y: Spec) -> Spec:
    """Along them: memory's below, the cache's above."""
    return {
        "transform": [
            {"filter": "datum.slope"},
            {"calculate": f"pow(datum.x, 1 - {NAMED_AT}) * pow(datum.x_end, {NAMED_AT})", "as": "named_x"},
            {"calculate": f"pow(datum.y, 1 - {NAMED_AT}) * pow(datum.y_end, {NAMED_AT})", "as": "named_y"},
        ],
        "mark": {
            "type": "text",
            "align": "center",
            "baseline": {"expr": "datum.used ? 'top' : 'bottom'"},
            "dy": {"expr": "datum.used ? 5 : -4"},
            "angle": {"expr": _ALONG_SLOPE},
            "opacity": {"expr": f"width < {NARROW} ? 0 : 1"},
        },
        "encoding": {"x": {**x, "field": "named_x"}, "y": {**y, "field": "named_y"}, "text": {"field": "label"}},
    }


def _reach(x: Spec, y: Spec) -> Spec:
    """From the picked bubble up to its ceiling."""
    return {
        "transform": [{"filter": "datum.i == picked && datum.c != null"}],
        "mark": {"type": "rule", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "y2": {"field": "c"}},
    }


def _bubbles(x: Spec, y: Spec, longest_s: float, tooltip: Spec | list[Spec]) -> Spec:
    """As large as their time."""
    scale = {"type": "linear", "domain": [0, longest_s], "rangeMin": 24, "rangeMax": 1600}
    return {
        "mark": {"type": "circle", "cursor": "pointer", "strokeWidth": 0.75},
        "encoding": {
            "x": x,
            "y": y,
            "size": {"field": "s", "type": "quantitative", "scale": scale, "legend": None},
            "color": by_regime("r"),
            "opacity": {"condition": {"test": "datum.i == picked", "value": 1}, "value": 0.72},
            "tooltip": tooltip,
        },
    }


_PLACE: Spec = {"field": "i", "type": "nominal"}
"""Among the ops: the page knows all about them."""
_TOLD: list[Spec] = [
    {"field": "op", "type": "nominal"},
    {"field": "s", "type": "quantitative", "title": "seconds", "format": ".3s"},
    {"field": "of", "type": "quantitative", "title": "of its ceiling", "format": ".0%"},
]


def _log_axis(field: str, title: str, domain: tuple[float, float], axis: Spec) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": list(domain), "nice": False, "clamp": True},
        "axis": {"values": decades(*domain), **axis},
    }
