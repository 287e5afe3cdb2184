"""`gobrrr trace`."""

from pathlib import Path
from shlex import quote

import click

from gobrrr.cli.output import kept, output_option
from gobrrr.cli.show import present


@click.command("trace")
@click.argument("file", metavar="FILE")
@output_option("step", "the Exam")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
@click.option(
    "--ceilings", type=click.Path(path_type=Path), help="What `gobrrr machine --json` said on the machine it ran on."
)
def command(file: str, *, outputs: tuple[Path, ...], as_json: bool, ceilings: Path | None) -> None:
    """Diagnose a trace that torch's profiler recorded (.json or .json.gz), of any age, from any machine.

    FILE may be any address that fsspec can open, as s3://… or https://…. Nothing is run. The step's time without the
    profiler is estimated, with an interval; what was not recorded is unknown, and the report says what to record.
    """
    from gobrrr.report.progress import progress_line
    from gobrrr.timing.traces.source import source_of
    from gobrrr.trace_examination import examine_trace

    with progress_line("tracing") as progress:
        exam = examine_trace(source_of(file), ceilings=ceilings, progress=progress)
    name = kept(outputs)
    following = f"gobrrr trace {quote(file)} -o exam.json.gz" if name is None else f"gobrrr show {quote(name)}"
    present(exam, following, as_json=as_json, outputs=outputs)
