"""One step as lanes over time."""

from gobrrr.report.charts.base import LANE, SECONDS, Spec, by_regime, chart
from gobrrr.report.lanes import LanesView


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
                    {"calculate": "zoom.a ? max(datum.a, zoom.a[0]) : datum.a", "as": "begun"},
                    {"filter": "datum.begun < datum.b"},
                ],
                "mark": {"type": "text", "align": "left", "dx": 6, "clip": True},
                "encoding": {"x": {**x, "field": "begun"}, "y": y, "text": {"field": "t"}},
            },
        ],
    }
