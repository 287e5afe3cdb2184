"""Markdown, short enough to paste into a pull request or to hand to a coding agent: what limits, and what to do."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath

from gobrrr import units
from gobrrr.diagnose.compare import Pair
from gobrrr.predict.prediction import Predictions
from gobrrr.report import compare
from gobrrr.report.diagnosis import note
from gobrrr.report.examined import Compared, Examined
from gobrrr.report.plain import capital, plain
from gobrrr.report.view import FindingLine, StepView, step_view
from gobrrr.report.waterfall import UNKNOWN_ADVICE, treatment_view
from gobrrr.treat.outcome import Treated

TOP_OPS = 5
TOP_MODULES = 3
TOP_FINDINGS = 3
MOST_EVIDENCE = 2
MOST_FIX = 2
TOP_CHANGES = 12
"""With these a step has fewer than 60 lines whatever it is, and nobody scrolls."""

_ESCAPED = str.maketrans(
    {character: f"\\{character}" for character in "\\`*_[]|~"} | {"<": "&lt;", ">": "&gt;", "&": "&amp;"}
)


def step(examined: Examined) -> str:
    view = step_view(examined.diagnosis)
    return _text(
        f"### gobrrr: {escaped(view.target)} on {escaped(view.machine)}",
        "",
        f"**{capital(escaped('; '.join(view.verdict)))}.** {capital(escaped(view.step))}.",
        "",
        *_table(["where the time goes", "seconds", "share", ""], _parts(view)),
        *_idle(view),
        "",
        *(line for found in view.findings[:TOP_FINDINGS] for line in _finding(found)),
        *([f"{capital(escaped(view.nothing))}.", ""] if view.nothing else []),
        *_table(["longest ops", "time", "of floor", "regime", "where"], _ops(view)),
        "",
        *_table(["longest modules", "time", "of busy", "of floor"], _modules(view)),
        "",
        f"{capital(escaped(view.measured[0]))}.",
        *(f"Doubt: {escaped(doubt)}." for doubt in view.doubts[:2]),
    )


def comparison(compared: Compared) -> str:
    found = compared.comparison
    both = found.same_machine  # between others no seconds are compared
    seconds = [
        [
            name,
            *([_pair(pair)] if both else []),
            f"{units.percent(found.shares[name].before, 0)} → {units.percent(found.shares[name].after, 0)}",
        ]
        for name, pair in found.seconds.items()
        if pair.before or pair.after
    ]
    changes = [
        [
            escaped(one.name),
            one.change,
            *([_pair(one.seconds or Pair(None, None))] if both else []),
            _of_ceiling(one.of_ceiling),
        ]
        for one in found.ops[:TOP_CHANGES]
    ]
    return _text(
        f"### gobrrr: {escaped(found.before.target)} → {escaped(found.after.target)}",
        "",
        f"**{escaped(compare.verdict(found))}**",
        "",
        *_table(["where the time goes", *(["seconds"] if both else []), "share"], seconds),
        "",
        *_table(["ops that changed", "", *(["seconds"] if both else []), "of floor"], changes),
    )


def predictions(found: Predictions) -> str:
    rows = [
        [
            escaped(one.accelerator),
            units.seconds(one.step_s),
            f"{units.seconds(one.low_s)} to {units.seconds(one.high_s)}",
            one.regime,
            one.limiter,
            "?"
            if one.peak_memory_bytes is None
            else units.capacity(one.peak_memory_bytes) + ("" if one.fits else ", does not fit"),
        ]
        for one in found.predictions
    ]
    changes = [
        [escaped(one.change), escaped(one.accelerator), units.seconds(one.step_s), units.times(one.speedup)]
        for one in found.what_if
    ]
    return _text(
        f"### gobrrr predict: {escaped(found.target)}",
        "",
        *_table(["accelerator", "step", "80 %", "regime", "limit", "memory"], rows),
        "",
        *_table(["what if", "on", "step", "speed-up"], changes),
    )


def treatment(found: Treated) -> str:
    view = treatment_view(found)
    kept = [
        [escaped(one.name), units.times(one.predicted), f"{units.times(one.measured)} ({one.interval})", one.numerics]
        for one in view.kept
    ]
    rejected = [
        [escaped(one.name), units.times(one.predicted), units.times(one.ratio), escaped(one.reason)]
        for one in view.rejected
    ]
    advice = [[escaped(one.title), escaped(one.treatment)] for one in view.advice or ()]
    return _text(
        "### gobrrr treat",
        "",
        f"**{escaped(view.verdict)}**" + ("" if view.memory is None else f"; {escaped(view.memory)}"),
        "",
        *_table(["kept", "predicted", "measured", "numerics"], kept),
        "",
        *_table(["rejected", "predicted", "measured", "why"], rejected),
        "",
        *_table(["not tried", "why"], [[escaped(one.name), escaped(one.reason)] for one in view.not_tried]),
        "",
        *(
            [f"Left to you: {UNKNOWN_ADVICE}."]
            if view.advice is None
            else _table(["left to you", "what helps"], advice)
        ),
        "",
        *(f"Doubt: {escaped(doubt)}." for doubt in view.doubts),
    )


def escaped(text: str) -> str:
    """What Markdown or HTML would take for theirs is said literally."""
    return plain(text).translate(_ESCAPED)


def _parts(view: StepView) -> Iterator[Sequence[str]]:
    for part in view.parts:
        yield part.regime, units.seconds(part.seconds), units.percent(part.share, 0), note(part)


def _idle(view: StepView) -> Iterator[str]:
    if view.idle:
        causes = ", ".join(f"{escaped(cause)} {units.seconds(seconds)}" for cause, seconds in view.idle.items())
        waits = "" if view.waits is None else f"; waits at {escaped(view.waits)}"
        yield from ("", f"Idle: {causes}{waits}.")


def _finding(found: FindingLine) -> Iterator[str]:
    stake = "unknown" if found.seconds_at_stake is None else units.seconds(found.seconds_at_stake)
    yield f"**{found.code} {escaped(found.title)}**: {stake} of the step at stake. {escaped(found.treatment)}"
    yield from (f"- {escaped(line)}" for line in found.evidence[:MOST_EVIDENCE])
    code = found.fix.splitlines()
    if found.seconds_at_stake and len(code) <= MOST_FIX:
        yield from ("```python", *code, "```")
    yield ""


def _ops(view: StepView) -> Iterator[Sequence[str]]:
    for line in view.ops[:TOP_OPS]:
        where = PurePath(line.source).name if line.source else line.module
        yield (
            f"{line.calls}× {escaped(line.label)}",
            units.seconds(line.seconds),
            units.percent(line.of_floor, 0),
            line.regime,
            escaped(where),
        )


def _modules(view: StepView) -> Iterator[Sequence[str]]:
    for line in sorted(view.modules, key=lambda line: -line.seconds)[:TOP_MODULES]:
        often = f" × {line.modules}" if line.modules > 1 else ""
        shares = (units.percent(line.share, 0), units.percent(line.of_floor, 0))
        yield f"{escaped(line.path)}{often}", units.seconds(line.seconds), *shares


def _pair(pair: Pair) -> str:
    return f"{units.seconds(pair.before)} → {units.seconds(pair.after)}"


def _of_ceiling(pair: Pair) -> str:
    return f"{units.percent(pair.before, 0)} → {units.percent(pair.after, 0)}"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """Nothing where there are no rows."""
    lines = [f"| {' | '.join(row)} |" for row in rows]
    if lines:
        yield from (f"| {' | '.join(head)} |", "|---" * len(head) + "|", *lines)


def _text(*lines: str) -> str:
    """With no two empty lines together."""
    kept = [line for line, before in zip(lines, ("", *lines), strict=False) if line or before]
    return "\n".join(kept).rstrip() + "\n"
