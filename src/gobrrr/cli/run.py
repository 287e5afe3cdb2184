"""`gobrrr run`."""

import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

import click

from gobrrr import schema
from gobrrr.cli import terminal
from gobrrr.cli.examine import kept_as
from gobrrr.cli.output import kept, output_option, write_outputs
from gobrrr.errors import GobrrrError, UsageError

if TYPE_CHECKING:
    from gobrrr.exam import Exam
    from gobrrr.integrations.script import Script

STEP_BY = ("forward", "backward", "optimizer")


class AsPython(click.Command):
    """What follows the script, `-m MODULE` or `-c CODE` belongs to the program, as with Python."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, _separated(args))


def _separated(args: list[str]) -> list[str]:
    place = 0
    while place < len(args) and args[place].startswith("-"):
        if args[place] in ("-m", "-c"):
            return [*args[: place + 2], "--", *args[place + 2 :]]
        place += 2 if args[place] in ("-o", "--output", "--json", "--step-by", "--apply") else 1
    return args


@click.command("run", cls=AsPython, context_settings={"allow_interspersed_args": False})
@click.option("-m", "module", metavar="MODULE", help="Run a module, as `python -m` does.")
@click.option("-c", "code", metavar="CODE", help="Run a string, as `python -c` does.")
@click.option("--stop", is_flag=True, help="End the program as soon as the verdict is there.")
@click.option("--step-by", type=click.Choice(STEP_BY), help="What ends a step, if it is not found right.")
@output_option("step", "the Exam")
@click.option("--json", "as_json", type=click.Path(path_type=Path), help="Write the diagnosis into this file.")
@click.option("--apply", "rx", type=click.Path(path_type=Path), help="Run it with this prescription, unexamined.")
@click.argument("args", metavar="SCRIPT ARGS...", nargs=-1, type=click.UNPROCESSED)
def command(
    args: tuple[str, ...],
    *,
    module: str | None,
    code: str | None,
    stop: bool,
    step_by: str | None,
    outputs: tuple[Path, ...],
    as_json: Path | None,
    rx: Path | None,
) -> None:
    """Examine an unmodified program: it finds the steps by itself, and says what limits them as soon as it knows.

    The program runs as Python would run it, and what it prints, reads and exits with is its own. Some of its steps are
    counted, recorded and timed; the verdict goes to stderr, and from then on nothing of gobrrr is left in it.
    """
    from gobrrr.integrations.attendant import Attendant, attending
    from gobrrr.integrations.period import Kind
    from gobrrr.integrations.script import exit_code

    script = _script(args, module, code)
    stderr, target = sys.stderr, shlex.join([*([script.kind] if script.kind else []), script.what, *script.args])

    def say(sentence: str) -> None:
        terminal.say(sentence, stderr)

    if rx is not None:
        sys.exit(exit_code(_treated(script, rx, say)))

    def report(exam: "Exam") -> None:
        try:
            _report(exam, outputs, as_json, stderr)
        except (GobrrrError, OSError) as error:
            say(str(error))

    kind = None if step_by is None else Kind[step_by.upper()]
    attendant = Attendant(target, report, say, step_by=kind, stop=stop)

    def attended() -> None:
        with attending(attendant):
            script.run()

    sys.exit(exit_code(attended))


def _treated(script: "Script", rx: Path, say: Callable[[str], None]) -> Callable[[], None]:
    from gobrrr.integrations.applying import applying
    from gobrrr.treat.outcome import prescription_in

    prescription = prescription_in(rx)

    def run() -> None:
        with applying(prescription, say):
            script.run()

    return run


def _script(args: tuple[str, ...], module: str | None, code: str | None) -> "Script":
    from gobrrr.integrations.script import Script

    if module is not None and code is not None:
        raise UsageError("-m and -c are two programs: give one of them")
    if module is not None:
        return Script("-m", module, args)
    if code is not None:
        return Script("-c", code, args)
    if not args:
        raise UsageError("nothing to run: gobrrr run SCRIPT ARGS…, -m MODULE or -c CODE")
    if not Path(args[0]).exists():
        raise UsageError(f"there is no file {args[0]}")
    return Script("", args[0], args[1:])


def _report(exam: "Exam", outputs: tuple[Path, ...], as_json: Path | None, stderr: TextIO) -> None:
    from gobrrr.diagnose.diagnosis import diagnose
    from gobrrr.report.diagnosis import render
    from gobrrr.report.examined import Examined

    diagnosis = diagnose(exam)
    if as_json is not None:
        schema.write(diagnosis, as_json)
    name = kept(outputs) or kept_as(exam)
    following = f"gobrrr run -o exam.json.gz {exam.target}" if name is None else f"gobrrr show {shlex.quote(name)}"
    terminal.show_page(render(diagnosis, following), stderr)
    write_outputs("step", Examined(exam, diagnosis), exam, outputs)
