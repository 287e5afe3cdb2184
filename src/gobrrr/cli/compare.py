"""`gobrrr compare`."""

from pathlib import Path
from shlex import quote

import click

from gobrrr import schema
from gobrrr.cli.terminal import show_page


@click.command("compare")
@click.argument("before", metavar="A", type=click.Path(path_type=Path))
@click.argument("after", metavar="B", type=click.Path(path_type=Path))
@click.option("--across-machines", is_flag=True, help="Compare fractions of ceilings where the machines differ.")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(before: Path, after: Path, *, across_machines: bool, as_json: bool) -> None:
    """Two traces or Exams side by side: slower and faster ops, changed regimes, what is new and what is gone."""
    from gobrrr.diagnose.compare import compare
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.trace_examination import exam_or_trace

    mine, theirs = (diagnose(exam_or_trace(path)) for path in (before, after))
    comparison = compare(mine, theirs, across_machines=across_machines)
    if as_json:
        click.echo(schema.dumps(comparison))
        return
    from gobrrr.report.compare import render

    show_page(render(comparison, f"gobrrr compare {quote(str(before))} {quote(str(after))} --json"))
