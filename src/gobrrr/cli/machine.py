"""`gobrrr machine`."""

import json
from datetime import UTC, datetime

import click

from gobrrr import schema


@click.command("machine")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
@click.option("--fresh", is_flag=True, help="Measure again what is in the cache.")
@click.option("--device", metavar="NAME", help="cpu, cuda, cuda:1; without it the accelerator, if there is one.")
@click.option("--only", multiple=True, metavar="PROBE", help="One probe or group (matmul.bf16, dram); may be repeated.")
def command(*, as_json: bool, fresh: bool, device: str | None, only: tuple[str, ...]) -> None:
    """Measure what this machine can do (kept for the next time) and draw its roofline.

    Matrix and vector rates, memory and cache bandwidth, the shortest kernel, what one eager op costs the host:
    each with its spread, and beside what the vendor's datasheet says.
    """
    from gobrrr.machine import datasheets, measured
    from gobrrr.machine.ceilings import complete
    from gobrrr.report.machine import all_doubts, render, view
    from gobrrr.report.progress import progress_line

    with progress_line("measuring the machine") as progress:
        ceilings = measured(device, only=only or None, fresh=fresh, progress=progress)
    sheet = datasheets.find(ceilings.device)
    if as_json:
        doubts = all_doubts(ceilings, sheet)
        for doubt in doubts:
            click.echo(f"gobrrr: {doubt.what}; {doubt.remedy}", err=True)
        click.echo(json.dumps(complete({**schema.document_data(ceilings), "doubts": schema.to_data(doubts)})))
        return
    from rich.console import Console

    render(view(ceilings, sheet, datetime.now(UTC)), Console(highlight=False))
