"""`gobrrr demo`."""

import os
from shlex import quote
from typing import TYPE_CHECKING

import click

from gobrrr.cli.examine import examined, kept_as
from gobrrr.cli.show import present
from gobrrr.errors import Missing, UsageError
from gobrrr.extras import need
from gobrrr.timing.steady import StepEffort

if TYPE_CHECKING:
    from gobrrr.patients import Patient

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

EVERYTHING = "everything"


@click.command("demo")
@click.argument("code", default="")
@click.option("--healthy", is_flag=True, help="Examine the patient's healthy twin.")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(code: str, *, healthy: bool, as_json: bool) -> None:
    """Examine a small built-in model on this machine, and say what is being done and why.

    CODE is that of a finding: the patient then is a model that has just this problem. `everything` is one that has
    nearly all of them. Without CODE it is a small transformer.
    """
    need("torch", "torch")
    if not code:
        from gobrrr.patients import transformer

        target = f"{os.path.relpath(transformer.__file__)}:training"
        _demonstrate(target, "", f"gobrrr examine {quote(target)} --batch-test", as_json=as_json)
        return
    patient = _patient(code)
    target = os.path.relpath(patient.target("healthy" if healthy else "sick"))
    about = f"Your patient {patient.about}." if not healthy else f"The twin of a patient that {patient.about}."
    following = f"gobrrr explain {patient.code}" if healthy else f"gobrrr demo {code} --healthy"
    _demonstrate(target, about, following, as_json=as_json, batch_test=patient.batch_test)


def _demonstrate(target: str, about: str, following: str, *, as_json: bool, batch_test: bool = False) -> None:
    def told(_number: int, _total: int, what: str) -> None:
        building = what == "building the workload"
        click.echo(about if about and building else EXPLAINED.get(what, what), err=True)

    exam = examined(target, told, effort=EFFORT, batch_test=batch_test)
    click.echo("What a machine can do, beside what was asked of it, is the diagnosis:\n", err=True)
    kept_as(exam)
    present(exam, following.strip(), as_json=as_json)


def _patient(code: str) -> "Patient":
    """The patient of that code, where its disease exists."""
    import torch

    from gobrrr.diagnose.findings import selected
    from gobrrr.patients import EVERYTHING as ALL_AT_ONCE
    from gobrrr.patients import PATIENTS, WITHOUT

    if code == EVERYTHING:
        return ALL_AT_ONCE
    known = selected([code])[0].code
    if known in WITHOUT or len(selected([code])) > 1:
        raise UsageError(f"there is no patient for {code}: {WITHOUT.get(known, 'name one finding, as B201')}")
    patient = PATIENTS[known]
    if "cpu" not in patient.devices and not torch.cuda.is_available():
        raise Missing(f"{known} exists on a GPU only, and there is none here: gobrrr explain {known} says what it is")
    return patient
