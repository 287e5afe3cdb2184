"""Predicted steps, one accelerator below the other."""

from gobrrr.predict.prediction import Predictions
from gobrrr.report.charts.base import LANE, REGIMES, SECONDS, Spec, by_regime, chart
from gobrrr.report.plain import plain


def predictions(found: Predictions) -> Spec:
    """A bar for each accelerator, its regimes one after the other, with the interval of 80 % across its end."""
    shares = [
        {"card": plain(one.accelerator), "s": share * one.step_s, "r": regime, "n": REGIMES.index(regime)}
        for one in found.predictions
        for regime, share in one.shares.items()
    ]
    ends = [{"card": plain(one.accelerator), "low": one.low_s, "high": one.high_s} for one in found.predictions]
    x = {"type": "quantitative", "title": None, "axis": {"labelExpr": SECONDS, "tickCount": 6}}
    y = {"field": "card", "type": "nominal", "title": None, "sort": None, "axis": {"domain": False, "ticks": False}}
    return {
        **chart(LANE * len(ends)),
        "layer": [
            {
                "data": {"values": shares},
                "mark": {"type": "bar", "height": 20},
                "encoding": {
                    "x": {**x, "field": "s", "stack": "zero"},
                    "y": y,
                    "color": by_regime("r"),
                    "order": {"field": "n", "type": "quantitative"},
                },
            },
            {
                "data": {"values": ends},
                "mark": {"type": "rule", "strokeWidth": 2.5},
                "encoding": {"x": {**x, "field": "low"}, "x2": {"field": "high"}, "y": y},
            },
        ],
    }
