"""Charts as Vega-Lite specs: plain dicts, valid for version 5, so that a page, a notebook and a picture draw the same.

A spec names no colour but through `config`, which belongs to a theme; regimes have their place in its category range.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from gobrrr.diagnose.regime import Regime
from gobrrr.lab.result import Column, Drawing
from gobrrr.predict.prediction import Predictions
from gobrrr.report.bubbles import RooflineView
from gobrrr.report.colours import LIGHT, Theme
from gobrrr.report.lanes import LanesView
from gobrrr.report.plain import plain
from gobrrr.report.roofline import decades
from gobrrr.report.waterfall import Level

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
LANE = 48
"""Pixels of height."""
NAMED_AT = 0.5
"""Of the way up a slope: left of it are ops that move bytes, right of it the names of roofs."""
NARROW = 460
"""Pixels: below, slopes are too steep and too close for a name."""
REGIMES = [regime.value for regime in Regime]

_RATE = "replace(format(datum.value, '~s'), /([kMGTPE]?)$/, ' $1FLOP/s')"
_ALONG_SLOPE = "-atan2(height / log(yHigh / yLow), width / log(xHigh / xLow)) * 180 / PI"
_SECONDS = (
    "datum.value == 0 ? '0' : abs(datum.value) < 1e-6 ? format(datum.value * 1e9, '.3~f') + ' ns' : "
    "abs(datum.value) < 1e-3 ? format(datum.value * 1e6, '.3~f') + ' µs' : "
    "abs(datum.value) < 1 ? format(datum.value * 1e3, '.3~f') + ' ms' : format(datum.value, '.3~f') + ' s'"
)


def config(theme: Theme = LIGHT) -> Spec:
    """What a theme says about every chart."""
    axis = {
        "labelColor": theme.muted,
        "titleColor": theme.muted,
        "gridColor": theme.line,
        "domainColor": theme.line,
        "tickColor": theme.line,
        "labelFontSize": 11,
        "titleFontSize": 11,
        "titleFontWeight": "normal",
    }
    return {
        "background": "transparent",
        "font": FONT,
        "view": {"stroke": None},
        "axis": axis,
        "text": {"color": theme.muted, "fontSize": 11},
        "rule": {"color": theme.ink},
        "tick": {"color": theme.ink},
        "circle": {"stroke": theme.card},
        "line": {"color": theme.regimes["compute"]},
        "point": {"color": theme.regimes["compute"]},
        "bar": {"color": theme.regimes["compute"]},
        "rect": {"color": theme.muted},
        "legend": {"labelColor": theme.muted, "titleColor": theme.muted},
        "header": {"labelColor": theme.muted, "titleColor": theme.muted},
        "range": {"category": [*(theme.regimes[name] for name in REGIMES), theme.ink, theme.muted]},
    }


def roofline(view: RooflineView, values: Iterable[Mapping[str, Any]] = (), *, height: int = 460) -> Spec:
    """Ceilings, and a bubble for each op: `values` from `bubble_values`, unless whoever embeds it supplies them."""
    x = _log_axis("x", "FLOPs per byte", (view.x_low, view.x_high), {"format": "~g"})
    y = _log_axis("y", "FLOP/s", (view.y_low, view.y_high), {"labelExpr": _RATE})
    ends = {"x2": {"field": "x_end"}, "y2": {"field": "y_end"}}
    ceilings = {"values": [asdict(line) for line in view.ceilings]}
    return {
        **_chart(height),
        "datasets": {"ops": list(values)},
        "params": [
            {"name": "xLow", "value": view.x_low},
            {"name": "xHigh", "value": view.x_high},
            {"name": "yLow", "value": view.y_low},
            {"name": "yHigh", "value": view.y_high},
            {"name": "picked", "value": -1},
        ],
        "layer": [
            {
                "data": ceilings,
                "mark": {"type": "rule", "strokeWidth": 1.5, "strokeCap": "round", "clip": True},
                "encoding": {
                    "x": x,
                    "y": y,
                    **ends,
                    "opacity": {"condition": {"test": "datum.used", "value": 1}, "value": 0.4},
                    "strokeDash": {"condition": {"test": "datum.used", "value": [1, 0]}, "value": [5, 4]},
                },
            },
            {
                "data": ceilings,
                "transform": [{"filter": "!datum.slope"}],
                "mark": {"type": "text", "align": "right", "baseline": "bottom", "dy": -4},
                "encoding": {"x": {**x, "field": "x_end"}, "y": y, "text": {"field": "label"}},
            },
            {
                "data": ceilings,
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
                "encoding": {
                    "x": {**x, "field": "named_x"},
                    "y": {**y, "field": "named_y"},
                    "text": {"field": "label"},
                },
            },
            _reach(x, y),
            _bubbles(x, y),
        ],
    }


def bubble_values(view: RooflineView, ops: Sequence[Any]) -> list[dict[str, Any]]:
    """The rows of the roofline's bubbles, the longest first."""
    return [
        {"i": place, "x": bubble.x, "y": bubble.y, "c": bubble.ceiling, "s": line.seconds, "r": line.regime}
        | {"op": line.label, "of ceiling": line.of_floor}
        for place, (line, bubble) in enumerate(zip(ops, view.bubbles, strict=True))
        if bubble is not None
    ]


def _reach(x: Spec, y: Spec) -> Spec:
    """From the picked bubble up to its ceiling."""
    return {
        "data": {"name": "ops"},
        "transform": [{"filter": "datum.i == picked && datum.c != null"}],
        "mark": {"type": "rule", "strokeWidth": 2, "clip": True},
        "encoding": {"x": x, "y": y, "y2": {"field": "c"}},
    }


def _bubbles(x: Spec, y: Spec) -> Spec:
    return {
        "data": {"name": "ops"},
        "mark": {"type": "circle", "cursor": "pointer", "strokeWidth": 0.75},
        "encoding": {
            "x": x,
            "y": y,
            "size": {
                "field": "s",
                "type": "quantitative",
                "scale": {"type": "linear", "domainMin": 0, "rangeMin": 24, "rangeMax": 1600},
                "legend": None,
            },
            "color": _by_regime("r"),
            "opacity": {"condition": {"test": "datum.i == picked", "value": 1}, "value": 0.72},
            "tooltip": {"field": "i", "type": "quantitative"},
        },
    }


def timeline(view: LanesView) -> Spec:
    """Lanes over time; the wheel zooms and dragging moves. Whoever embeds it supplies the bars."""
    x = {
        "field": "a",
        "type": "quantitative",
        "title": None,
        "scale": {"domain": [view.start_s, view.end_s], "nice": False},
        "axis": {"labelExpr": _SECONDS, "grid": False, "tickCount": 8},
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
        **_chart(LANE * max(1, len(view.lanes))),
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
                    "color": _by_regime("r"),
                    "opacity": {"field": "o", "type": "quantitative", "scale": None},
                    "tooltip": {"field": "i", "type": "quantitative"},
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


def step_times(windows_s: Sequence[float], low_s: float, high_s: float) -> Spec:
    """Every window's step, and the interval of the median."""
    band = {"values": [{"low": low_s, "high": high_s}]}
    x = {"type": "quantitative", "title": None, "scale": {"zero": False, "padding": 12}}
    axis = {"labelExpr": _SECONDS, "grid": False, "tickCount": 6}
    return {
        **_chart(44),
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


def predictions(found: Predictions) -> Spec:
    """A bar for each accelerator, its regimes one after the other, with the interval of 80 % across its end."""
    shares = [
        {"card": plain(one.accelerator), "s": share * one.step_s, "r": regime, "n": REGIMES.index(regime)}
        for one in found.predictions
        for regime, share in one.shares.items()
    ]
    ends = [{"card": plain(one.accelerator), "low": one.low_s, "high": one.high_s} for one in found.predictions]
    x = {"type": "quantitative", "title": None, "axis": {"labelExpr": _SECONDS, "tickCount": 6}}
    y = {"field": "card", "type": "nominal", "title": None, "sort": None, "axis": {"domain": False, "ticks": False}}
    return {
        **_chart(LANE * len(ends)),
        "layer": [
            {
                "data": {"values": shares},
                "mark": {"type": "bar", "height": 20},
                "encoding": {
                    "x": {**x, "field": "s", "stack": "zero"},
                    "y": y,
                    "color": _by_regime("r"),
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


def waterfall(levels: Sequence[Level]) -> Spec:
    """Step times from left to right: what each treatment took off, with a tick where it was predicted to end."""
    looks = ["after", "kept", "before", "", "floor"]  # in the colours of regimes: blue, amber, red, and grey
    values = [{**asdict(level), "n": place} for place, level in enumerate(levels)]
    x = {"field": "name", "type": "nominal", "title": None, "sort": {"field": "n"}, "axis": {"labelAngle": -25}}
    y = {"type": "quantitative", "title": None, "axis": {"labelExpr": _SECONDS, "tickCount": 6}}
    colours = {"field": "kind", "type": "nominal", "scale": {"domain": looks}, "legend": None}
    return {
        **_chart(320),
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
        ],
    }


def drawing(one: Drawing, points: Sequence[Mapping[str, Any]]) -> Spec:
    """An experiment's own way to look at its points: a curve over two logarithmic axes, or bars."""
    return _curve(one, points) if one.kind == "curve" else _bars(one, points)


def _curve(one: Drawing, points: Sequence[Mapping[str, Any]]) -> Spec:
    x, y = _log_field(one.x), _log_field(one.y)
    marks = [{"name": name, "at": at, "n": 14 * row} for row, (name, at) in enumerate((one.marks or {}).items())]
    at = {**x, "field": "at"}
    return {
        **_chart(240),
        "layer": [
            {
                "data": {"values": _values(points, (one.x, one.y))},
                "mark": {"type": "line", "point": {"size": 45, "filled": True}, "strokeWidth": 2},
                "encoding": {"x": {**x, "field": "x"}, "y": {**y, "field": "y"}},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "rule", "strokeDash": [4, 4]},
                "encoding": {"x": at},
            },
            {
                "data": {"values": marks},
                "mark": {"type": "text", "align": "right", "dx": -5},
                "encoding": {
                    "x": at,
                    "y": {"field": "n", "type": "quantitative", "scale": None, "axis": None},
                    "text": {"field": "name"},
                },
            },
        ],
    }


def _bars(one: Drawing, points: Sequence[Mapping[str, Any]]) -> Spec:
    axis = {"labelExpr": _LABELS.get(one.y.unit, "datum.label"), "tickCount": 5}
    y_axis = {"domain": False, "ticks": False, "labelLimit": 220}
    scale = {"domain": [0, 1]} if one.y.unit == "%" else {}
    return {
        **_chart(26 * max(1, len(points))),
        "data": {"values": _values(points, (one.x, one.y))},
        "mark": {"type": "bar", "height": 14, "cornerRadiusEnd": 3},
        "encoding": {
            "y": {"field": "x", "type": "nominal", "sort": None, "title": None, "axis": y_axis},
            "x": {"field": "y", "type": "quantitative", "title": one.y.title, "axis": axis, "scale": scale},
        },
    }


_LABELS = {
    "s": _SECONDS,
    "FLOP/s": _RATE,
    "B/s": _RATE.replace("FLOP/s", "B/s"),
    "%": "format(datum.value, '.0%')",
    "": "format(datum.value, '~s')",
}


def _values(points: Sequence[Mapping[str, Any]], columns: tuple[Column, Column]) -> list[dict[str, Any]]:
    """The two fields of every point; names in a file are anyone's."""
    x, y = columns
    return [
        {"x": plain(point[x.field]) if isinstance(point[x.field], str) else point[x.field], "y": point[y.field]}
        for point in points
    ]


def _log_field(column: Column) -> Spec:
    axis = {
        "labelExpr": _LABELS.get(column.unit, "datum.label"),
        "tickCount": 5,
        "labelOverlap": "greedy",
        "grid": False,
    }
    name = {"title": column.title, "type": "quantitative", "axis": axis}
    return {**name, "scale": {"type": "log", "nice": False, "padding": 10}}


def _by_regime(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": {"domain": REGIMES}, "legend": None}


def _log_axis(field: str, title: str, domain: tuple[float, float], axis: Spec) -> Spec:
    return {
        "field": field,
        "type": "quantitative",
        "title": title,
        "scale": {"type": "log", "domain": list(domain), "nice": False, "clamp": True},
        "axis": {"values": decades(*domain), **axis},
    }


def _chart(height: int) -> Spec:
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }
