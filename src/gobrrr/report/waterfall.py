"""Treatments as a waterfall, from the step as it was to its floors: what each was predicted and measured to bring.

It takes what `treat --json` prints, so that a kept file shows the same.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gobrrr import units
from gobrrr.report.plain import plain


@dataclass(frozen=True, slots=True)
class Level:
    """A step time of the waterfall, with where it came from."""

    name: str
    kind: str
    """`before`, `kept`, `after`, `floor`."""
    from_s: float
    to_s: float
    predicted_s: float | None
    """Where the treatment was predicted to bring it."""


@dataclass(frozen=True, slots=True)
class KeptLine:
    name: str
    predicted: float
    measured: float
    interval: str
    numerics: str


@dataclass(frozen=True, slots=True)
class LeftLine:
    """A treatment that was rejected or not tried."""

    name: str
    ratio: float | None
    """Measured, or the most that it could have brought."""
    reason: str


@dataclass(frozen=True, slots=True)
class TreatmentView:
    target: str
    verdict: str
    levels: tuple[Level, ...]
    kept: tuple[KeptLine, ...]
    rejected: tuple[LeftLine, ...]
    not_tried: tuple[LeftLine, ...]


def treatment_view(data: Mapping[str, Any]) -> TreatmentView:
    return TreatmentView(
        target=plain(data.get("target") or "a workload"),
        verdict=_verdict(data),
        levels=tuple(_levels(data)),
        kept=tuple(_kept(one) for one in data["kept"]),
        rejected=tuple(
            LeftLine(plain(one["treatment"]), one["measured"], plain(one["reason"])) for one in data["rejected"]
        ),
        not_tried=tuple(
            LeftLine(plain(one["treatment"]), one["bound"], plain(one["reason"])) for one in data["not_tried"]
        ),
    )


def _verdict(data: Mapping[str, Any]) -> str:
    interval = f"{units.times(data['speedup_low'])} to {units.times(data['speedup_high'])}"
    floor_s = data["fused_floor_s"]
    of_floor = "" if not floor_s else f"; at {units.percent(floor_s / data['treated_s'], 0)} of the fused floor"
    return (
        f"{units.seconds(data['baseline_s'])} → {units.seconds(data['treated_s'])}: {units.times(data['speedup'])} "
        f"({interval}), {units.times(data['predicted_speedup'])} was predicted{of_floor}"
    )


def _levels(data: Mapping[str, Any]) -> Iterator[Level]:
    """Ratios are of the step before a treatment to the step with it; the last level is what was measured at the end."""
    now_s = data["baseline_s"]
    yield Level("as it was", "before", 0.0, now_s, None)
    for one in data["kept"]:
        then_s = now_s / one["measured"]
        yield Level(plain(one["treatment"]), "kept", now_s, then_s, now_s / one["predicted"])
        now_s = then_s
    yield Level("treated", "after", 0.0, data["treated_s"], data["baseline_s"] / data["predicted_speedup"])
    for name, key in (("fused floor", "fused_floor_s"), ("compulsory floor", "compulsory_floor_s")):
        if data[key] is not None:
            yield Level(name, "floor", 0.0, data[key], None)


def _kept(one: Mapping[str, Any]) -> KeptLine:
    check = one["numerics"]
    worst = check["worst_error"]
    error = "" if worst is None else f", worst error {units.significant(worst, 2)}"
    return KeptLine(
        name=plain(one["treatment"]),
        predicted=one["predicted"],
        measured=one["measured"],
        interval=f"{units.times(one['low'])} to {units.times(one['high'])}",
        numerics=plain(f"{check['cls']}{error}{'' if check['passed'] else ', FAILED'}"),
    )
