"""The waterfall from the step as it was to its floors."""

from collections.abc import Sequence
from dataclasses import asdict

from gobrrr.report.charts.base import SECONDS, Spec, chart
from gobrrr.report.waterfall import Level


def waterfall(levels: Sequence[Level]) -> Spec:
    """Step times from left to right: what each treatment took off and led to, with a tick where it was predicted to."""
    looks = ["after", "kept", "before", "", "floor"]  # in the colours of regimes: blue, amber, red, and grey
    values = [{**asdict(level), "said": level.said, "n": place} for place, level in enumerate(levels)]
    x = {"field": "name", "type": "nominal", "title": None, "sort": {"field": "n"}, "axis": {"labelAngle": -25}}
    y = {"type": "quantitative", "title": None, "axis": {"labelExpr": SECONDS, "tickCount": 6}}
    colours = {"field": "kind", "type": "nominal", "scale": {"domain": looks}, "legend": None}
    return {
        **chart(320),
        "data": {"values": values},
        "layer": [
            {
                "mark": {"type": "bar", "width": {"band": 0.6}, "cornerRadius": 3},
                "encoding": {"x": x, "y": {**y, "field": "from_s"}, "y2": {"field": "to_s"}, "color": colours},
            },
            {
                "transform": [{"filter": "datum.predicted_s != null"}],
                "mark": {"type": "tick", "thickness": 2.5, "width": {"band": 0.8}},
                "encoding": {"x": x, "y": {**y, "field": "predicted_s"}},
            },
            {
                "transform": [{"calculate": "max(datum.from_s, datum.to_s, datum.predicted_s)", "as": "top_s"}],
                "mark": {"type": "text", "baseline": "bottom", "dy": -5},
                "encoding": {"x": x, "y": {**y, "field": "top_s"}, "text": {"field": "said", "type": "nominal"}},
            },
        ],
    }
