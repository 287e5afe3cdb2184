"""The step time of each window."""

from collections.abc import Sequence

from gobrrr.report.charts.base import SECONDS, Spec, chart


def step_times(windows_s: Sequence[float], low_s: float, high_s: float) -> Spec:
    """Every window's step, and the interval of the median."""
    band = {"values": [{"low": low_s, "high": high_s}]}
    x = {"type": "quantitative", "title": None, "scale": {"zero": False, "padding": 12}}
    axis = {"labelExpr": SECONDS, "grid": False, "tickCount": 6}
    return {
        **chart(44),
        "layer": [
            {
                "data": band,
                "mark": {"type": "rect", "opacity": 0.18},
                "encoding": {"x": {**x, "field": "low", "axis": axis}, "x2": {"field": "high"}},
            },
            {
                "data": {"values": [{"s": seconds} for seconds in windows_s]},
                "mark": {"type": "tick", "thickness": 1.5, "height": 26, "opacity": 0.7},
                "encoding": {"x": {**x, "field": "s", "axis": axis}},
            },
        ],
    }
