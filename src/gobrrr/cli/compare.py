"""`gobrrr compare`."""

from pathlib import Path
from shlex import quote

import click

from gobrrr import schema
from gobrrr.cli.output import draw
from gobrrr.cli.terminal import show_page


@click.command("compare")
@click.argument("before", metavar="A")
@click.argument("after", metavar="B")
@click.option("--across-machines", is_flag=True, help="Compare fractions of ceilings where the machines differ.")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Draw both for ui.perfetto.dev (.pftrace).")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(before: str, after: str, *, across_machines: bool, output: Path | None, as_json: bool) -> None:
    """Two traces or Exams side by side: slower and faster ops, changed regimes, what is new and what is gone."""
    from gobrrr.diagnose.compare import compare
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.timing.traces.source import source_of
    from gobrrr.trace_examination import exam_or_trace

    exams = [exam_or_trace(source_of(one)) for one in (before, after)]
    if output is not None:
        draw(exams, output)
    comparison = compare(*map(diagnose, exams), across_machines=across_machines)
    if as_json:
        click.echo(schema.dumps(comparison))
        return
    from gobrrr.report.compare import render

    show_page(render(comparison, f"gobrrr compare {quote(before)} {quote(after)} --json"))
