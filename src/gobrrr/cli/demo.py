"""`gobrrr demo`."""

import os

import click

from gobrrr.cli.examine import examined, kept_as
from gobrrr.cli.show import present
from gobrrr.extras import need
from gobrrr.timing.steady import StepEffort

EXPLAINED = {
    "building the workload": "Your patient is a small transformer: a step of its training, forward, backward, AdamW.",
    "counting a step": "Counting what a step must do at least: FLOPs and bytes of every op, from first principles.",
    "measuring the ceilings it needs": "Measuring what this machine can do, as far as the step needs it (then kept).",
    "timing the step": "Timing the step as it runs by itself, with no profiler that would slow it.",
    "recording a few steps": "Recording a few steps, to give every second to an op.",
}
"""What each stage of an examination is for."""

EFFORT = StepEffort(warmup_steps=50, warmup_s=3, window_s=0.1, window_steps=5, windows=10, budget_s=3)
"""Less patient than with a step of somebody's own: the first verdict shall come within 30 s on two cores."""


@click.command("demo")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(*, as_json: bool) -> None:
    """Examine a small transformer's training step on this machine, and say what is being done and why."""
    need("torch", "torch")
    from gobrrr.patients import transformer

    target = f"{os.path.relpath(transformer.__file__)}:training"
    exam = examined(target, _told, effort=EFFORT)
    click.echo("What a machine can do, beside what was asked of it, is the diagnosis:\n", err=True)
    kept_as(exam)
    present(exam, f"gobrrr examine {target} --batch-test", as_json=as_json)


def _told(_number: int, _total: int, what: str) -> None:
    click.echo(EXPLAINED.get(what, what), err=True)
