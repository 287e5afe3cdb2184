"""What all charts share: the theme's say, the colours of regimes, axes in the units that a person would say."""

from typing import Any

from gobrrr.diagnose.regime import Regime
from gobrrr.report.colours import LIGHT, Theme

Spec = dict[str, Any]

SCHEMA = "https://vega.github.io/schema/vega-lite/v5.json"
FONT = "ui-sans-serif, system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
REGIMES = [regime.value for regime in Regime]
LANE = 48
"""Pixels: the height of a row."""

RATE = "replace(format(datum.value, '~s'), /([kMGTPE]?)$/, ' $1FLOP/s')"
SECONDS = (
    "datum.value == 0 ? '0' : abs(datum.value) < 1e-6 ? format(datum.value * 1e9, '.3~f') + ' ns' : "
    "abs(datum.value) < 1e-3 ? format(datum.value * 1e6, '.3~f') + ' µs' : "
    "abs(datum.value) < 1 ? format(datum.value * 1e3, '.3~f') + ' ms' : format(datum.value, '.3~f') + ' s'"
)
"""Expressions that write an axis' values."""


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
        "range": {"category": [theme.regimes[name] for name in REGIMES]},
    }


def chart(height: int) -> Spec:
    """As wide as whatever holds it."""
    return {
        "$schema": SCHEMA,
        "width": "container",
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
    }


def by_regime(field: str) -> Spec:
    return {"field": field, "type": "nominal", "scale": {"domain": REGIMES}, "legend": None}
