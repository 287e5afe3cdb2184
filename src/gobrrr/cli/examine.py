"""`gobrrr examine`."""

from collections.abc import Callable
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from gobrrr.cli.output import kept, output_option
from gobrrr.cli.selection import selected_rules, selecting
from gobrrr.cli.show import present
from gobrrr.cli.terminal import say

if TYPE_CHECKING:
    from gobrrr.exam import Exam
    from gobrrr.timing.steady import StepEffort


@click.command("examine")
@click.argument("target", metavar="FILE.py:NAME")
@click.option("--batch-test", is_flag=True, help="Also time twice the batch: is the step overhead-bound?")
@selecting
@output_option("step", "the Exam")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(
    target: str, *, batch_test: bool, select: str, ignore: str, outputs: tuple[Path, ...], as_json: bool
) -> None:
    """Time one step of a workload, join it with the work, and say what limits it.

    FILE.py:NAME is a function that returns a gobrrr.Workload, a (model, inputs) pair, or a step to call. Everything is
    afterwards as it was: parameters, buffers, gradients, optimizer state, random numbers, flags. The last ten Exams are
    kept for `gobrrr show`.
    """
    from gobrrr.report.progress import progress_line

    rules = selected_rules(select, ignore)
    with progress_line("examining") as progress:
        exam = examined(target, progress, batch_test=batch_test)
    name = kept(outputs) or kept_as(exam)
    following = f"gobrrr examine {quote(target)} -o exam.json.gz" if name is None else f"gobrrr show {quote(name)}"
    present(exam, following, as_json=as_json, rules=rules, outputs=outputs)


def examined(
    target: str,
    progress: Callable[[int, int, str], None],
    *,
    batch_test: bool = False,
    effort: "StepEffort | None" = None,
) -> "Exam":
    """The Exam of FILE.py:NAME."""
    from gobrrr.examination import examine
    from gobrrr.workload import load_factory

    return examine(load_factory(target), target, progress, batch_test=batch_test, effort=effort)


def kept_as(exam: "Exam") -> str | None:
    """What `gobrrr show` calls it, if it could be kept."""
    from gobrrr import history

    return "last" if history.keep(exam, say) else None
