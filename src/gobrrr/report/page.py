"""The page: one self-contained file, offline. Templates lay out what the views hold; nothing from outside is trusted.

Names are escaped by the templates, data stands in a block that no browser runs, and the page's own policy admits the two
scripts in it by their hashes and nothing else, neither inline nor from a network.
"""

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import datetime
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gobrrr import schema, units
from gobrrr.diagnose.regime import Regime
from gobrrr.extras import need
from gobrrr.machine import datasheets
from gobrrr.report import charts, machine
from gobrrr.report.bubbles import RooflineView, roofline_view
from gobrrr.report.colours import THEMES
from gobrrr.report.examined import Examined
from gobrrr.report.factory import factory_view
from gobrrr.report.lanes import LanesView, lanes_view
from gobrrr.report.plain import plain
from gobrrr.report.view import OpLine, StepView, step_view

DIGITS = 4
"""Of a number in the page's data: nothing that we measure is known better."""

_FAMILIES = {"B1": "overhead", "B2": "bandwidth", "B3": "compute", "B4": "communication"}
_TEXTS = ("label", "kernel", "shapes", "module", "source", "cls", "phase", "regime", "level")


def step_page(examined: Examined) -> str:
    exam, view = examined.exam, step_view(examined.diagnosis)
    roofline, lanes = roofline_view(exam, view.ops), lanes_view(exam)
    made_at = datetime.fromisoformat(exam.made_at)
    low_s, high_s = examined.diagnosis.step_s_low, examined.diagnosis.step_s_high
    specs = {"steps": charts.step_times(exam.window_step_s, low_s, high_s)}
    specs |= {} if roofline.missing else {"roofline": charts.roofline(roofline)}
    specs |= {} if not lanes.bars else {"timeline": charts.timeline(lanes)}
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


_SECTIONS = {
    "roofline-section": "Roofline",
    "findings": "Findings",
    "factory": "Factory",
    "modules": "Modules",
    "ops": "Ops",
    "timeline-section": "One step",
    "classes": "Classes",
    "measured": "How it was measured",
}


def rendered(
    template: str, *, specs: Mapping[str, charts.Spec], data: Mapping[str, Any] | None = None, **context: Any
) -> str:
    """A page of ours, with its charts and the data that its script reads."""
    script = _asset("page.js")
    bundle = _bundle() if specs else ""
    configs = {name: charts.config(theme) for name, theme in THEMES.items()}
    return _environment().get_template(template).render(
        **context,
        themes=THEMES,
        css=Markup(_asset("page.css")),  # noqa: S704 (our own file)
        script=Markup(script),  # noqa: S704 (our own file)
        bundle=Markup(bundle),  # noqa: S704 (a library's, with no end of a script in it)
        hashes=Markup(" ".join(map(_hash, (bundle, script)))),  # noqa: S704 (hashes and quotes of our own)
        data=_embedded({**(data or {}), "specs": specs, "configs": configs}),
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("gobrrr.report", "assets"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "seconds": lambda value: "0 s" if value == 0 else units.seconds(value),
        "percent": lambda value: units.percent(value, 0),
        "fine": lambda value: units.percent(value, 2 if value is not None and 0 < value < 0.01 else 1),
        "width": lambda share: f"{100 * max(0.0, min(1.0, share)):.3f}%",
        "moved": units.moved,
        "flops_per_s": units.flops_per_s,
        "bytes_per_s": units.bytes_per_s,
        "capacity": units.capacity,
        "times": units.times,
        "capital": lambda text: text[:1].upper() + text[1:],
        "family": lambda code: _FAMILIES.get(code[:2], "neutral"),
    }
    return environment


def _asset(name: str) -> str:
    return files("gobrrr.report").joinpath("assets", name).read_text(encoding="utf-8")


@cache
def _bundle() -> str:
    """Vega, Vega-Lite and Vega-Embed in one script; what would end the element that holds it is written otherwise."""
    bundle: str = need("vl_convert", "html").javascript_bundle()
    return bundle.replace("</script", "<\\/script").replace("<!--", "<\\!--")


def _hash(script: str) -> str:
    return f"'sha256-{b64encode(sha256(script.encode()).digest()).decode()}'"


def _embedded(data: Mapping[str, Any]) -> Markup:
    """JSON within HTML: no character in it can end the element or begin another."""
    text = json.dumps(schema.to_data(data), separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)  # noqa: S704 (nothing that HTML knows is left in it)


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
        "regimes": charts.REGIMES,
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
