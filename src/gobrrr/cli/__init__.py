"""The command line: one file a command, imported only when it is called, and the one place of exit codes."""

import sys
import traceback
from importlib import import_module
from io import TextIOWrapper

import click

from gobrrr.cli.terminal import printable, say
from gobrrr.errors import BUG, GobrrrError, Interrupted, Missing

# The help lines stand here so that `gobrrr --help` imports click and nothing else.
COMMANDS = {
    "machine": "Measure this machine (cached) and draw its roofline.",
    "count": "FLOPs, bytes and memory of every op of a workload, on fake tensors.",
    "run": "Examine an unmodified program: it finds the steps and says what limits them.",
    "predict": "What a step would take on other accelerators, or otherwise.",
    "examine": "Time one step of a workload, join it with the work, and say what limits it.",
    "treat": "Try what can make a step faster, prove it, and keep what helped.",
    "trace": "Diagnose a trace that torch's profiler recorded, from any machine.",
    "show": "Show again what was kept, anywhere.",
    "compare": "Two traces or Exams side by side: what became slower, what changed.",
    "explain": "Say what a finding means and what helps, or list them all.",
    "demo": "Examine a small built-in model, sick or healthy, explained as it goes.",
    "lab": "Test the article's claims on this machine.",
}


class Commands(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        command: click.Command = import_module(f"gobrrr.cli.{cmd_name}").command
        command.help = command.help or COMMANDS[cmd_name]
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="gobrrr")
def gobrrr() -> None:
    """Tell me what limits my PyTorch step, from first principles; fix it; prove it."""


def main() -> None:
    """Runs the command line and exits with the code that the error tree documents.

    A terminal that cannot show a character gets a question mark, not a traceback; an error of ours shows its traceback
    and has a code of its own, for 1 is an answer.
    """
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="replace")
    try:
        code = gobrrr.main(sys.argv[1:] or ["--help"], prog_name="gobrrr", standalone_mode=False)
    except click.ClickException as error:
        asked = getattr(error, "ctx", None)
        message = " ".join(error.format_message().split())
        say(f"{message} Try '{asked.command_path if asked else 'gobrrr'} --help'.")
        code = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        say("interrupted")
        code = Interrupted.exit_code
    except GobrrrError as error:
        say(str(error))
        code = error.exit_code
    except OSError as error:
        say(str(error))
        code = Missing.exit_code
    except Exception:  # noqa: BLE001 (the last resort)
        click.echo(printable(traceback.format_exc()), err=True, nl=False)
        say("the error above is a bug of gobrrr's, please report it")
        code = BUG
    sys.exit(code)
