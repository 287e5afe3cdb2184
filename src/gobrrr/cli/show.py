"""`gobrrr show`."""

from functools import partial
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from gobrrr import schema
from gobrrr.cli.output import answer, check_endings, output_option, write_outputs
from gobrrr.cli.selection import selected_rules, selecting
from gobrrr.cli.terminal import show_page
from gobrrr.errors import UsageError
from gobrrr.report.formats import FORMATS

if TYPE_CHECKING:
    from gobrrr.diagnose.findings import Rule
    from gobrrr.exam import Exam
    from gobrrr.lab.result import Lab
    from gobrrr.predict.prediction import Predictions
    from gobrrr.treat.outcome import Treated


@click.command("show")
@click.argument("file", default="last")
@selecting
@output_option(("step", "treatment", "predictions", "lab"), "the data")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(file: str, *, select: str, ignore: str, outputs: tuple[Path, ...], as_json: bool) -> None:
    """Show again what was kept, an Exam diagnosed anew; needs neither torch nor the machine that it was made on.

    FILE is what `-o x.json` wrote: an Exam, or what was treated, predicted or tested in the lab. (A comparison is made
    again by `gobrrr compare`.) Or it is one of the ten Exams that were made last: `last`, which is meant if nothing is
    given, `last~1` before it, and so on.
    """
    from gobrrr import history
    from gobrrr.exam import Exam
    from gobrrr.lab.result import Lab
    from gobrrr.predict.prediction import Predictions
    from gobrrr.treat.outcome import Prescription, Treated

    rules = selected_rules(select, ignore)
    kinds: list[type[Exam | Treated | Predictions | Lab | Prescription]]
    kinds = [Exam, Treated, Predictions, Lab, Prescription]
    found = schema.read_one_of(kinds, history.path_of(file))
    if isinstance(found, Prescription):
        raise UsageError(f"{file} is a prescription, which `gobrrr run --apply` and gobrrr.apply apply to a program")
    if isinstance(found, Exam):
        check_endings(FORMATS["step"], outputs)
        following = f"gobrrr show {quote(file)} " + ("--json" if outputs else "-o report.html")
        present(found, following, as_json=as_json, rules=rules, outputs=outputs)
        return
    if select or ignore:
        raise UsageError(f"--select and --ignore are for Exams, and {file} is none")
    _present_again(found, as_json=as_json, outputs=outputs)


def _present_again(found: "Treated | Predictions | Lab", *, as_json: bool, outputs: tuple[Path, ...]) -> None:
    from gobrrr.lab.result import Lab
    from gobrrr.report import lab, predict, treat
    from gobrrr.report.plain import plain
    from gobrrr.treat.outcome import Treated

    if isinstance(found, Treated):
        again = f"gobrrr treat {quote(plain(found.target))} --keep rx.json"
        kind, page = "treatment", partial(treat.render, found, again)
    elif isinstance(found, Lab):
        kind, page = "lab", partial(lab.render, found)
    else:
        kind, page = "predictions", partial(predict.render, found)
    check_endings(FORMATS[kind], outputs)
    answer(kind, found, found, page, outputs=outputs, as_json=as_json)


def present(
    exam: "Exam",
    following: str,
    *,
    as_json: bool,
    rules: "tuple[Rule, ...] | None" = None,
    outputs: tuple[Path, ...] = (),
) -> None:
    """The Exam's diagnosis, for a program or for a person, who is also told the next command, and as files."""
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.report.examined import Examined

    diagnosis = diagnose(exam, rules)
    write_outputs("step", Examined(exam, diagnosis), exam, outputs)
    if as_json:
        click.echo(schema.dumps(diagnosis))
        return
    from gobrrr.report.diagnosis import render

    show_page(render(diagnosis, following))
