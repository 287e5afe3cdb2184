"""The terminal view of Predictions."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gobrrr import units
from gobrrr.predict.prediction import Prediction, Predictions

_SHOWN = {"comp": "compute", "bandw": "bandwidth", "over": "overhead"}


def render(found: Predictions) -> RenderableType:
    parts: list[RenderableType] = [
        Text.assemble(("gobrrr predict ", "bold"), f"{found.target} · one step"),
        "",
        _predictions(found),
    ]
    if found.what_if:
        parts += ["", _what_ifs(found)]
    first = found.predictions[0]
    parts += ["", Text(_sentence(first)), Text(f"next: gobrrr examine {found.target}", style="bold")]
    return Group(*parts)


def _predictions(found: Predictions) -> Table:
    table = _table("accelerator", "step", "80 %", *(f"{name} %" for name in _SHOWN), "limit", "memory", "")
    for one in found.predictions:
        table.add_row(
            one.accelerator,
            units.seconds(one.step_s),
            f"±{units.percent(one.high_s / one.step_s - 1, 0)}",
            *(f"{100 * one.shares[name]:.0f}" for name in _SHOWN.values()),
            one.limiter,
            _memory(one.peak_memory_bytes),
            _room(one),
        )
    return table


def _what_ifs(found: Predictions) -> Table:
    table = _table("what if", "on", "step", "speed-up", "memory")
    for one in found.what_if:
        memory = _memory(one.peak_memory_bytes)
        table.add_row(one.change, one.accelerator, units.seconds(one.step_s), units.times(one.speedup), memory)
    return table


def _memory(needed: int | None) -> str:
    return "?" if needed is None else units.capacity(needed)


def _room(one: Prediction) -> str:
    if one.peak_memory_bytes is None:
        return ""
    return "fits" if one.fits else f"{units.capacity(one.peak_memory_bytes - one.memory_bytes)} too much"


def _sentence(one: Prediction) -> str:
    means = {
        "host": "the host issues work more slowly than the card does it: compile, graphs or a larger batch help",
        "device": f"the card is busy all the time, mostly with {one.regime}",
        "balanced": "host and card take about as long as each other",
    }
    return f"{one.accelerator}: {means.get(one.limiter, 'neither host nor card fills the step')}."


def _table(first: str, *columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column(first, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", overflow="fold")
    return table
