"""`gobrrr show`."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

import click

from gobrrr import schema
from gobrrr.cli.output import output_option, write_outputs
from gobrrr.cli.selection import selected_rules, selecting
from gobrrr.cli.terminal import show_page

if TYPE_CHECKING:
    from gobrrr.diagnose.findings import Rule
    from gobrrr.exam import Exam


@click.command("show")
@click.argument("exam", default="last")
@selecting
@output_option("step", "the Exam")
@click.option("--json", "as_json", is_flag=True, help="Data on stdout, nothing else there.")
def command(exam: str, *, select: str, ignore: str, outputs: tuple[Path, ...], as_json: bool) -> None:
    """Diagnose a kept Exam again; needs neither torch nor the machine that it was made on.

    EXAM is a file, or one of the ten Exams that were made last: `last`, which is meant if nothing is given, `last~1`
    before it, and so on.
    """
    from gobrrr import history
    from gobrrr.exam import Exam

    rules = selected_rules(select, ignore)
    following = f"gobrrr show {quote(exam)} " + ("--json" if outputs else "-o report.html")
    present(schema.read(Exam, history.path_of(exam)), following, as_json=as_json, rules=rules, outputs=outputs)


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
