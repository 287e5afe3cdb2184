"""One step as lanes over time."""

from gobrrr.report.charts.base import LANE, SECONDS, Spec, by_regime, chart
from gobrrr.report.lanes import LanesView

LEAST_ROOM = 34
"""Pixels of a bar, below which it has no name: the next one's would run into it."""

_ROOM = "scale('x', datum.b) - scale('x', datum.begun) - 8"


def timeline(view: LanesView) -> Spec:
    """Lanes over time; the wheel zooms and dragging moves. Whoever embeds it supplies the bars."""
    x = {
        "field": "a",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [view.start_s, view.end_s], "nice": False},
        "axis": {"labelExpr": SECONDS, "grid": False, "tickCount": 8},
    }
    y = {
        "field": "l",
        "type": "nominal",
        "title": None,
        "sort": list(view.lanes),
        "scale": {"domain": list(view.lanes), "paddingInner": 0.3},
        "axis": {"domain": False, "ticks": False, "labelFontSize": 12},
    }
    return {
        **chart(LANE * max(1, len(view.lanes))),
        "datasets": {"bars": []},
        "data": {"name": "bars"},
        "layer": [
            {
                "params": [{"name": "zoom", "select": {"type": "interval", "encodings": ["x"]}, "bind": "scales"}],
                "mark": {"type": "rect", "clip": True, "cursor": "pointer"},
                "encoding": {
                    "x": x,
                    "x2": {"field": "b"},
                    "y": y,
                    "color": by_regime("r"),
                    "opacity": {"field": "o", "type": "quantitative", "scale": None},
                    "tooltip": {"field": "i", "type": "nominal"},
                },
            },
            {
                "transform": [
                    {"filter": "datum.t"},
                    {"calculate": f"max(datum.a, zoom.a ? zoom.a[0] : {view.start_s})", "as": "begun"},
                    {"filter": "datum.begun < datum.b"},
                ],
                "mark": {
                    "type": "text",
                    "align": "left",
                    "dx": 6,
                    "clip": True,
                    "limit": {"expr": f"max(1, {_ROOM})"},
                    "opacity": {"expr": f"{_ROOM} < {LEAST_ROOM} ? 0 : 1"},
                },
                "encoding": {"x": {**x, "field": "begun"}, "y": y, "text": {"field": "t"}},
            },
        ],
    }
