"""`gobrrr treat`."""

from functools import partial
from math import ceil
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from gobrrr import schema, units
from gobrrr.cli.output import answer, check_writable, output_option
from gobrrr.cli.terminal import say, show_page
from gobrrr.errors import CannotDecide, Interrupted, UsageError

if TYPE_CHECKING:
    from gobrrr.treat.outcome import Treated

ENOUGH = 4
"""Times what a search took whose budget was too small for anything to help."""


@click.command("treat")
@click.argument("target", metavar="FILE.py:NAME", required=False)
@click.option("--allow", metavar="TYPES", default="", help="Numbers may change so: tf32,bf16,int8.")
@click.option(
    "--budget",
    metavar="TIME",
    default="5m",
    show_default=True,
    help="No trial begins after so long, and none compiles for longer.",
)
@click.option("--keep", type=click.Path(path_type=Path), metavar="FILE", help="Write the prescription into this file.")
@output_option("treatment", "what was found")
@click.option("--list", "listed", is_flag=True, help="List all treatments.")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(
    target: str | None,
    *,
    allow: str,
    budget: str,
    keep: Path | None,
    outputs: tuple[Path, ...],
    listed: bool,
    as_json: bool,
) -> None:
    """Try what can make a step faster, check that it computes the same, and say what helped.

    FILE.py:NAME is a function that returns a gobrrr.Workload, a (model, inputs) pair, or a step to call. Everything is
    afterwards as it was; what helped is a prescription, for gobrrr.apply("rx.json", model, optimizer) or
    `gobrrr run --apply rx.json`. ^C ends the search and keeps what was found.
    """
    if listed and as_json:
        raise UsageError("--list is a table to read: leave --json out")
    if listed:
        _list()
        return
    if target is None:
        raise UsageError("nothing to treat: gobrrr treat FILE.py:NAME")
    from gobrrr.treat.treating import allowed_types

    check_writable(() if keep is None else (keep,))
    types = allowed_types(word.strip() for word in allow.split(",") if word.strip())
    found = _treated(target, types, units.parse_seconds(budget))
    from gobrrr.report.treat import render

    written = None
    try:
        if keep is not None:
            written = _kept_in(keep, found)
    finally:
        page = partial(render, found, _following(found, target, types, written))
        answer("treatment", found, found, page, outputs=outputs, as_json=as_json)
    _refuse_to_say_no(found)


def _kept_in(path: Path, found: "Treated") -> Path | None:
    """What is there already may be worth more than nothing."""
    if not found.kept:
        say(f"nothing helped: {path} is not written")
        return None
    schema.write(found.prescription, path)
    say(f"wrote {path}")
    return path


def _refuse_to_say_no(found: "Treated") -> None:
    """Where nothing was kept because nobody could tell, or waited."""
    from gobrrr.treat.search import INTERRUPTED
    from gobrrr.treat.trial import UNDECIDED

    if found.kept:
        return
    if any(one.reason == INTERRUPTED for one in found.not_tried):
        raise Interrupted("interrupted before anything had helped")
    if any(one.reason.startswith(UNDECIDED) for one in found.rejected):
        raise CannotDecide("nothing was kept, and not all could be decided: try again on a quieter machine")


def _following(found: "Treated", target: str, allow: frozenset[str], keep: Path | None) -> str:
    """What to type next."""
    from gobrrr.treat.search import SPENT

    again = f"gobrrr treat {quote(target)}" + (f" --allow {quote(','.join(sorted(allow)))}" if allow else "")
    if not found.kept and any(one.reason == SPENT for one in found.not_tried):
        return f"{again} --budget {ceil(ENOUGH * found.spent_s / 60)}m"
    if not found.kept:
        return f"gobrrr examine {quote(target)}"
    if keep is None:
        return f"{again} --keep rx.json"
    whole = any(dose.sites == ("step",) for dose in found.prescription.doses)
    return f'in your program: rx = gobrrr.apply("{keep}", {_given(found)}){"; step = rx.step(step)" if whole else ""}'


def _given(found: "Treated") -> str:
    """One of each, or lists; and no optimizer where there was none."""
    rx = found.prescription
    model = "[model, ...]" if (rx.models or 1) > 1 else "model"
    optimizer = "[optimizer, ...]" if (rx.optimizers or 1) > 1 else "optimizer"
    return model if rx.optimizers == 0 else f"{model}, {optimizer}"


def _treated(target: str, allow: frozenset[str], budget_s: float) -> "Treated":
    from gobrrr.treat.treating import treat
    from gobrrr.workload import load_factory

    return treat(load_factory(target), target, allow=allow, budget_s=budget_s, say=say)


def _list() -> None:
    import gobrrr.treat.treatments  # noqa: F401 (registers them)
    from gobrrr.report.treat import render_list
    from gobrrr.treat.treatment import TREATMENTS

    show_page(render_list(TREATMENTS.values()))
