"""`gobrrr examine`."""

from pathlib import Path

import click

from gobrrr import schema


@click.command("examine")
@click.argument("target", metavar="FILE.py:NAME")
@click.option("--output", "-o", type=click.Path(path_type=Path), help="Keep the Exam in this file (.json or .json.gz).")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(target: str, *, output: Path | None, as_json: bool) -> None:
    """Time one step of a workload, join it with the work, and say what limits it.

    FILE.py:NAME is a function that returns a gobrrr.Workload, a (model, inputs) pair, or a step to call. Everything is
    afterwards as it was: parameters, buffers, gradients, optimizer state, random numbers, flags.
    """
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.examination import examine
    from gobrrr.report.progress import progress_line
    from gobrrr.workload import load_factory

    with progress_line("examining") as progress:
        exam = examine(load_factory(target), target, progress)
    kept = output or Path("exam.json.gz")
    if output is not None:
        schema.write(exam, output)
    diagnosis = diagnose(exam)
    if as_json:
        click.echo(schema.dumps(diagnosis))
        return
    from rich.console import Console

    from gobrrr.report.diagnosis import render

    following = f"gobrrr show {kept}" if output is not None else f"gobrrr examine {target} -o {kept}"
    Console(highlight=False).print(render(diagnosis, following))
