"""The page: one self-contained file, offline. Templates lay out what the views hold; nothing from outside is trusted.

Names are escaped by the templates, data is packed into letters and digits, and the page's own policy admits the two
scripts in it by their hashes and nothing else, neither inline nor from a network.
"""

import gzip
import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from gobrrr import schema, units
from gobrrr.extras import need
from gobrrr.report.charts.base import Spec, config
from gobrrr.report.colours import THEMES
from gobrrr.report.plain import capital

_FAMILIES = {"B1": "overhead", "B2": "bandwidth", "B3": "compute", "B4": "communication"}


def rendered(template: str, *, specs: Mapping[str, Spec], data: Mapping[str, Any] | None = None, **context: Any) -> str:
    """A page of ours, with its charts and the data that its script reads."""
    script = _asset("page.js")
    bundle = _bundle() if specs else ""
    configs = {name: config(theme) for name, theme in THEMES.items()}
    return (
        _environment()
        .get_template(template)
        .render(
            context,
            themes=THEMES,
            css=Markup(_asset("page.css")),  # noqa: S704 (our own file)
            script=Markup(script),  # noqa: S704 (our own file)
            bundle=Markup(bundle),  # noqa: S704 (a library's, with no end of a script in it)
            hashes=Markup(" ".join(map(_hash, (bundle, script)))),  # noqa: S704 (hashes and quotes of our own)
            data=_packed({**(data or {}), "specs": specs, "configs": configs}),
        )
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
        "signed": lambda value: units.UNKNOWN if value is None else f"{'+' if value > 0 else ''}{units.seconds(value)}",
        "percent": lambda value: units.percent(value, 0),
        "fine": lambda value: units.percent(value, 2 if value is not None and 0 < value < 0.01 else 1),
        "width": lambda share: f"{100 * max(0.0, min(1.0, share)):.3f}%",
        "moved": units.moved,
        "flops_per_s": units.flops_per_s,
        "bytes_per_s": units.bytes_per_s,
        "capacity": units.capacity,
        "times": units.times,
        "capital": capital,
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


def _packed(data: Mapping[str, Any]) -> str:
    """JSON, compressed to a tenth, in an alphabet that HTML has no word in."""
    text = json.dumps(schema.to_data(data), separators=(",", ":"), allow_nan=False)
    return b64encode(gzip.compress(text.encode(), mtime=0)).decode()
