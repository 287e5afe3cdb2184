"""`gobrrr count`."""

import click

from gobrrr import schema


@click.command("count")
@click.argument("target", metavar="FILE.py:NAME")
@click.option("--real", is_flag=True, help="Run on this machine instead of on fake tensors.")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else.")
def command(target: str, *, real: bool, as_json: bool) -> None:
    """FLOPs, bytes and memory of every op of one step, forward, backward and optimizer.

    FILE.py:NAME is a function that returns a gobrrr.Workload, a (model, inputs) pair, or a step to call.
    """
    from gobrrr.report.progress import progress_line
    from gobrrr.work.count import count_workload
    from gobrrr.work.tally import tally
    from gobrrr.workload import load_factory

    with progress_line("counting") as progress:
        count = tally(count_workload(load_factory(target), real=real, progress=progress))
    if as_json:
        click.echo(schema.dumps(count))
        return
    from rich.console import Console

    from gobrrr.report.count import render

    Console().print(render(target, count, real=real))
