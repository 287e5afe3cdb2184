"""`gobrrr lab`."""

from functools import partial
from pathlib import Path

import click

from gobrrr.cli.output import answer, output_option


@click.command("lab")
@click.argument("names", metavar="[NAME]...", nargs=-1)
@output_option("lab", "all points and claims")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(names: tuple[str, ...], *, outputs: tuple[Path, ...], as_json: bool) -> None:
    """Test the claims of "Making Deep Learning Go Brrrr From First Principles" on this machine.

    For each: what is claimed, what was measured here, a verdict by a fixed rule, and why. The experiments are peaks,
    intensity, fusion, overhead, batch and bert; without a NAME all of them.
    """
    from gobrrr.extras import need
    from gobrrr.report.progress import progress_line

    need("torch", "torch")
    from gobrrr.lab.run import run
    from gobrrr.report.lab import render

    with progress_line("lab") as progress:
        lab = run(names, progress)
    answer("lab", lab, lab, partial(render, lab), outputs=outputs, as_json=as_json)
