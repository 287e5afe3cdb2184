"""An experiment's own way to look at its points."""

from collections.abc import Mapping, Sequence
from typing import Any

from gobrrr.lab.result import Column, Drawing
from gobrrr.report.charts.base import RATE, SECONDS, Spec, chart
from gobrrr.report.plain import plain

_LABELS = {
    "s": SECONDS,
    "FLOP/s": RATE,
    "B/s": RATE.replace("FLOP/s", "B/s"),
    "%": "format(datum.value, '.0%')",
    "": "format(datum.value, datum.value < 1 ? '~g' : '~s')",
}


def drawing(one: Drawing, points: Sequence[Mapping[str, Any]]) -> Spec:
    """A curve over two logarithmic axes, or bars."""
    return _curve(one, points) if one.kind == "curve" else _bars(one, points)


def _curve(one: Drawing, points: Sequence[Mapping[str, Any]]) -> Spec:
    x, y = _log_field(one.x), _log_field(one.y)
    marks = [{"name": name, "at": at, "n": 14 * row} for row, (name, at) in enumerate((one.marks or {}).items())]
    at = {**x, "field": "at"}
    return {
        **chart(240),
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
        **chart(26 * max(1, len(points))),
        "data": {"values": _values(points, (one.x, one.y))},
        "mark": {"type": "bar", "height": 14, "cornerRadiusEnd": 3},
        "encoding": {
            "y": {"field": "x", "type": "nominal", "sort": None, "title": None, "axis": y_axis},
            "x": {"field": "y", "type": "quantitative", "title": one.y.title, "axis": axis, "scale": scale},
        },
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
