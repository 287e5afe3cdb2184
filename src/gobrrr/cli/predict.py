"""`gobrrr predict`."""

from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gobrrr import schema
from gobrrr.cli.output import answer, output_option
from gobrrr.errors import UsageError

if TYPE_CHECKING:
    from gobrrr.machine.ceilings import Ceilings
    from gobrrr.machine.datasheets import Datasheet
    from gobrrr.predict.prediction import Predictions
    from gobrrr.predict.what_if import Change
    from gobrrr.work.program import Program


@click.command("predict")
@click.argument("target", metavar="FILE.py:NAME", required=False)
@click.option("--on", "on", default="", metavar="CARD,…", help="Accelerators by datasheet: h100, b200, mi300x, …")
@click.option("--what-if", "what_if", metavar="CHANGE,…", help="batch=2x, dtype=bf16, compile, flash, …: see below.")
@click.option("--exam", metavar="FILE", help="Scale the measured step of an Exam or trace instead of counting one.")
@click.option("--ceilings", type=click.Path(path_type=Path), multiple=True, help="`gobrrr machine --json` of a card.")
@click.option("--real", is_flag=True, help="Count while running on this machine instead of on fake tensors.")
@output_option("predictions", "the predictions")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(
    target: str | None,
    *,
    on: str,
    what_if: str | None,
    exam: str | None,
    ceilings: tuple[Path, ...],
    real: bool,
    outputs: tuple[Path, ...],
    as_json: bool,
) -> None:
    """What one step would take on accelerators that are not here, and otherwise than it is written.

    The workload is counted on fake tensors and its kernels are timed by a model of each accelerator, by datasheet or,
    with --ceilings, by what was measured on it. With --exam a measured step is scaled, to its own machine if --on
    names no other. What-ifs are batch=2x, sequence=2x, dtype=bf16|fp16|tf32|fp8, compile, graph, flash, checkpoint and
    power=300; several are predicted each alone and all together.
    """
    from gobrrr.machine.ceilings import Ceilings
    from gobrrr.predict.what_if import parse

    sheets = [_sheet(name.strip()) for name in on.split(",") if name.strip()]
    changes = parse(what_if) if what_if is not None else []
    if (target is None) == (exam is None) or not (sheets or exam):
        raise UsageError("predict takes FILE.py:NAME or --exam EXAM, and accelerators to predict for: --on h100,b200")
    if exam is not None:
        found = _from_exam(exam, sheets, changes)
    else:
        found = _from_factory(
            str(target), sheets, changes, [schema.read(Ceilings, path) for path in ceilings], real=real
        )
    from gobrrr.report.predict import render

    answer("predictions", found, found, partial(render, found), outputs=outputs, as_json=as_json)


def _sheet(name: str) -> "Datasheet":
    from gobrrr.machine import datasheets

    sheet = datasheets.find(name) or datasheets.meant(name)
    if sheet is None:
        alike = ", ".join(datasheets.near(name)) or "h100-sxm, mi300x, rtx4090"
        raise UsageError(f"there is no datasheet of {name!r}; near are {alike}")
    return sheet


def _from_factory(
    target: str, sheets: "list[Datasheet]", changes: "list[Change]", ceilings: "list[Ceilings]", *, real: bool
) -> "Predictions":
    from gobrrr.predict.inputs import Scale, resized
    from gobrrr.predict.prediction import predictions
    from gobrrr.predict.step import Variant
    from gobrrr.report.progress import progress_line
    from gobrrr.work.count import count_elsewhere
    from gobrrr.work.tracing import compile_modes
    from gobrrr.workload import load_factory

    with progress_line("predicting") as progress, compile_modes() as modes:
        factory = load_factory(target)

        @cache
        def counting(scale: Scale) -> "Program":
            return count_elsewhere(resized(factory, scale), real=real, traced=scale.traced, progress=progress)

        counting(Scale())  # which tells whether anything is compiled
        return predictions(target, counting, sheets, changes, ceilings, Variant.of_modes(modes))


def _from_exam(path: str, sheets: "list[Datasheet]", changes: "list[Change]") -> "Predictions":
    from gobrrr.predict.prediction import from_exam
    from gobrrr.timing.traces.source import source_of
    from gobrrr.trace_examination import exam_or_trace

    return from_exam(exam_or_trace(source_of(path)), sheets, changes)
