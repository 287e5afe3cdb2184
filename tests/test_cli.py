import ast
import sys
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import click
import pytest

from gobrrr import cli, errors


@pytest.fixture
def gobrrr(monkeypatch, capsys):
    """Types `gobrrr ARGS…` and returns exit code, stdout and stderr."""

    def typed(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gobrrr", *args])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        return exited.value.code or 0, *capsys.readouterr()

    return typed


@pytest.fixture
def fake_command(monkeypatch):
    """Adds a command `fake` that does what it is told."""

    def added(body: Callable[[], object], **options: object) -> None:
        command = click.command("fake", **options)(click.option("--size", type=int)(lambda size: body()))
        monkeypatch.setitem(sys.modules, "gobrrr.cli.fake", SimpleNamespace(command=command))
        monkeypatch.setitem(cli.COMMANDS, "fake", "Does what it is told.")

    return added


def raising(error: BaseException) -> Callable[[], object]:
    def body() -> object:
        raise error

    return body


@pytest.mark.parametrize(
    "kind", [*errors.GobrrrError.__subclasses__(), errors.GobrrrError], ids=lambda kind: kind.__name__
)
def test_an_error_is_one_line_on_stderr_and_its_own_exit_code(gobrrr, fake_command, kind):
    fake_command(raising(kind("the trace is from Mars: try another")))
    assert gobrrr("fake") == (kind.exit_code, "", "gobrrr: the trace is from Mars: try another\n")


@pytest.mark.parametrize("stop", [KeyboardInterrupt(), click.Abort()], ids=repr)
def test_an_interrupt_is_130(gobrrr, fake_command, stop):
    fake_command(raising(stop))
    code, out, err = gobrrr("fake")
    assert (code, out, err.strip()) == (130, "", "gobrrr: interrupted")


@pytest.mark.parametrize(
    ("args", "asked"),
    [
        (["frobnicate"], "gobrrr"),
        (["--frobnicate"], "gobrrr"),
        (["fake", "frobnicate"], "gobrrr fake"),
        (["fake", "--size", "frobnicate"], "gobrrr fake"),
    ],
)
def test_a_command_line_that_makes_no_sense_is_exit_2_and_one_line(gobrrr, fake_command, args, asked):
    fake_command(lambda: None)
    code, out, err = gobrrr(*args)
    assert (code, out) == (2, "")
    assert err.startswith("gobrrr: ")
    assert "frobnicate" in err
    assert err.endswith(f" Try '{asked} --help'.\n")
    assert err.count("\n") == 1


@pytest.mark.parametrize(("returned", "code"), [(None, 0), (0, 0), (7, 7)])
def test_a_command_may_return_the_exit_code_of_what_it_ran(gobrrr, fake_command, returned, code):
    fake_command(lambda: returned)
    assert gobrrr("fake") == (code, "", "")


def test_a_mistake_of_ours_shows_its_traceback_and_is_no_answer(gobrrr, fake_command):
    fake_command(raising(ZeroDivisionError()))
    code, out, err = gobrrr("fake")
    assert (code, out) == (errors.BUG, "")
    assert "ZeroDivisionError" in err
    assert "a bug of gobrrr's" in err


def test_what_the_system_refuses_is_one_sentence(gobrrr, fake_command):
    fake_command(raising(OSError(28, "No space left on device")))
    assert gobrrr("fake") == (6, "", "gobrrr: [Errno 28] No space left on device\n")


@pytest.mark.parametrize("args", [["--help"], ["-h"], []], ids=str)
def test_help_lists_every_command_with_its_line(gobrrr, args):
    code, out, err = gobrrr(*args)
    assert (code, err) == (0, "")
    words = " ".join(out.split())
    assert all(f"{name} {line}" in words for name, line in cli.COMMANDS.items())


def test_a_command_without_a_docstring_has_the_line_of_the_list_as_its_help(gobrrr, fake_command):
    fake_command(lambda: None)
    code, out, _ = gobrrr("fake", "--help")
    assert code == 0
    assert "Does what it is told." in out


def test_a_command_with_a_docstring_keeps_it(gobrrr, fake_command):
    fake_command(lambda: None, help="At length.")
    assert "At length." in gobrrr("fake", "--help")[1]


def test_every_file_that_holds_a_command_is_listed():
    files = (path for path in Path(cli.__file__).parent.glob("*.py") if path.stem != "__init__")
    assert {path.stem for path in files if holds_command(path)} <= set(cli.COMMANDS)


def holds_command(path: Path) -> bool:
    return any(
        isinstance(node, ast.FunctionDef) and node.name == "command" for node in ast.parse(path.read_text()).body
    )


def test_the_version_is_that_of_the_package(gobrrr):
    assert gobrrr("--version") == (0, f"gobrrr, version {version('gobrrr')}\n", "")
