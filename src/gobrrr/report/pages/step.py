"""The page of a step: verdict, roofline, findings, factory, modules, timeline, classes, and how it was measured."""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from datetime import datetime
from typing import Any

from gobrrr.diagnose.regime import Regime
from gobrrr.machine import datasheets
from gobrrr.report import machine
from gobrrr.report.bubbles import RooflineView, roofline_view
from gobrrr.report.charts.base import REGIMES
from gobrrr.report.charts.roofline import roofline as roofline_chart
from gobrrr.report.charts.step_times import step_times
from gobrrr.report.charts.timeline import timeline
from gobrrr.report.examined import Examined
from gobrrr.report.factory import factory_view
from gobrrr.report.lanes import LanesView, lanes_view
from gobrrr.report.page import rendered
from gobrrr.report.view import OpLine, StepView, step_view

DIGITS = 6
"""Of a number in the page's data: three are shown, and rounding twice would show others."""

_TEXTS = ("label", "kernel", "shapes", "module", "source", "cls", "phase", "regime", "level")
_SECTIONS = {
    "roofline-section": "Roofline",
    "ops": "Ops",
    "findings": "Findings",
    "factory": "Factory",
    "modules": "Modules",
    "timeline-section": "One step",
    "classes": "Classes",
    "measured": "How it was measured",
}


def render(examined: Examined) -> str:
    exam, view = examined.exam, step_view(examined.diagnosis)
    roofline, lanes = roofline_view(exam, view.ops), lanes_view(examined)
    made_at = datetime.fromisoformat(exam.made_at)
    low_s, high_s = examined.diagnosis.step_s_low, examined.diagnosis.step_s_high
    specs = {"steps": step_times(exam.window_step_s, low_s, high_s)}
    specs |= {} if roofline.missing else {"roofline": roofline_chart(roofline)}
    specs |= {} if not lanes.bars else {"timeline": timeline(lanes)}
    return rendered(
        "step.html",
        title=f"{view.target}: {view.verdict[0]}",
        heading=(view.target, view.machine, exam.made_at[:10]),
        sections=_SECTIONS,
        specs=specs,
        data=_step_data(view, roofline, lanes),
        view=view,
        roofline=roofline,
        lanes=lanes,
        factory=factory_view(exam, examined.diagnosis),
        machine=machine.view(exam.ceilings, datasheets.find(exam.ceilings.device), made_at),
        made_at=f"{made_at:%Y-%m-%d %H:%M} UTC",
        regimes=[regime.value for regime in Regime if any(line.regime == regime for line in view.ops)],
        classes=sorted({line.cls for line in view.ops}),
        phases=list(dict.fromkeys(line.phase for line in view.ops)),
    )


def _step_data(view: StepView, roofline: RooflineView, lanes: LanesView) -> dict[str, Any]:
    """In columns, every text once: twenty thousand ops are a megabyte so."""
    strings: dict[str | None, int] = {}

    def column(name: str, values: Iterable[Any]) -> list[Any]:
        if name not in _TEXTS:
            return [_rounded(value) for value in values]
        return [None if value is None else strings.setdefault(value, len(strings)) for value in values]

    names = [field.name for field in fields(OpLine)]
    ops = {name: column(name, (getattr(line, name) for line in view.ops)) for name in names}
    for name in ("x", "y", "ceiling"):
        ops[name] = [None if bubble is None else _rounded(getattr(bubble, name)) for bubble in roofline.bubbles]
    bars = {
        "lanes": lanes.lanes,
        "regimes": REGIMES,
        "kinds": ("kernel", "gap", "host"),
        "start": [float(f"{bar.start_s:.7g}") for bar in lanes.bars],
        "length": [_rounded(bar.seconds) for bar in lanes.bars],
        "op": [bar.op for bar in lanes.bars],
        "what": [strings.setdefault(bar.what, len(strings)) for bar in lanes.bars],
    }
    bars["lane"] = _places(bars["lanes"], (bar.lane for bar in lanes.bars))
    bars["regime"] = _places(bars["regimes"], (bar.regime for bar in lanes.bars))
    bars["kind"] = _places(bars["kinds"], (bar.kind for bar in lanes.bars))
    return {
        "step_s": view.step_s,
        "window": (lanes.start_s, lanes.end_s),
        "ops": ops,
        "bars": bars,
        "texts": _TEXTS,
        "strings": list(strings),
    }


def _places(names: Sequence[str], values: Iterable[str]) -> list[int]:
    place = {name: number for number, name in enumerate(names)}
    return [place[value] for value in values]


def _rounded(value: Any) -> Any:
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
