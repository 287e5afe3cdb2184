"""`gobrrr show`."""

from pathlib import Path

import click

from gobrrr import schema


@click.command("show")
@click.argument("exam", metavar="EXAM", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(exam: Path, *, as_json: bool) -> None:
    """Diagnose a kept Exam again; needs neither torch nor the machine that it was made on."""
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.exam import Exam

    diagnosis = diagnose(schema.read(Exam, exam))
    if as_json:
        click.echo(schema.dumps(diagnosis))
        return
    from rich.console import Console

    from gobrrr.report.diagnosis import render

    Console(highlight=False).print(render(diagnosis, f"gobrrr show {exam} --json"))
