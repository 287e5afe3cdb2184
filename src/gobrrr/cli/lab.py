"""`gobrrr lab`."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from gobrrr import schema
from gobrrr.errors import Missing

if TYPE_CHECKING:
    from gobrrr.lab.result import Lab

NEXT = "gobrrr examine FILE.py:NAME"
WIDTH = 120
"""Of the text that is kept."""


@click.command("lab")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@click.option(
    "--output", "-o", type=click.Path(path_type=Path, file_okay=False), help="Keep lab.json and lab.txt in this folder."
)
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(names: tuple[str, ...], *, output: Path | None, as_json: bool) -> None:
    """Test the claims of "Making Deep Learning Go Brrrr From First Principles" on this machine.

    For each: what is claimed, what was measured here, a verdict by a fixed rule, and why. The experiments are peaks,
    intensity, fusion, overhead, batch and bert; without a NAME all of them.
    """
    from gobrrr.extras import need
    from gobrrr.report.progress import progress_line

    need("torch", "torch")
    from gobrrr.lab.run import run

    with progress_line("lab") as progress:
        lab = run(names, progress)
    if output is not None:
        _keep(lab, output)
    if as_json:
        click.echo(schema.dumps(lab))
        return
    from rich.console import Console

    from gobrrr.report.lab import render

    Console(highlight=False).print(render(lab, NEXT))


def _keep(lab: "Lab", folder: Path) -> None:
    """The data and the page as it would be printed."""
    from rich.console import Console

    from gobrrr.report.lab import render

    schema.write(lab, folder / "lab.json")
    path = folder / "lab.txt"
    try:
        with path.open("w", encoding="utf-8") as file:
            Console(file=file, width=WIDTH, highlight=False).print(render(lab, NEXT))
    except OSError as error:
        raise Missing(f"{path} cannot be written: {error.strerror or error}") from None
