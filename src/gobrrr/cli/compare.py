"""`gobrrr compare`."""

from functools import partial
from pathlib import Path
from shlex import quote

import click

from gobrrr.cli.output import answer, output_option


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--across-machines", is_flag=True, help="Compare fractions of ceilings where the machines differ.")
@output_option("comparison", "the comparison")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(before: str, after: str, *, across_machines: bool, outputs: tuple[Path, ...], as_json: bool) -> None:
    """Two traces or Exams side by side: slower and faster ops, changed regimes, what is new and what is gone."""
    from gobrrr.diagnose.compare import compare
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.report.compare import render
    from gobrrr.report.examined import Compared, Examined
    from gobrrr.timing.traces.source import source_of
    from gobrrr.trace_examination import exam_or_trace

    exams = [exam_or_trace(source_of(one)) for one in (before, after)]
    mine, theirs = (Examined(exam, diagnose(exam)) for exam in exams)
    comparison = compare(mine.diagnosis, theirs.diagnosis, across_machines=across_machines)
    page = partial(render, comparison, f"gobrrr compare {quote(before)} {quote(after)} --json")
    answer("comparison", Compared(mine, theirs, comparison), comparison, page, outputs=outputs, as_json=as_json)
