"""What comes from outside is shown on the terminal, never obeyed."""

import sys
from dataclasses import replace
from io import BytesIO, TextIOWrapper

import pytest
from rich.text import Text

from gobrrr import cli, schema
from gobrrr.cli.terminal import printable, show_page
from gobrrr.exam import Exam, Quality
from gobrrr.timing.kernel import Sync
from test_exam import doing, exam, small_program
from traces import Tape, additions

EVIL = "\x1b]0;owned\x07\x1b[2J\r\x9b31m\x7f"
CONTROLS = {chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))} - {"\n"}


def evil_exam() -> Exam:
    """Every string in it that a page may show."""
    ops = tuple(
        replace(op, name=f"aten::{EVIL}", module=f"Net.{EVIL}", source=f"{EVIL}.py:1") for op in small_program().ops
    )
    return exam(
        *(doing(i, op, i, 1.0) for i, op in enumerate(ops)),
        program=replace(small_program(), ops=ops),
        target=EVIL,
        ceilings_from=EVIL,
        step_s_method=EVIL,
        idle={EVIL: 0.5, "sync": 0.5},
        syncs=(Sync(EVIL, 1.0, EVIL),),
        quality=Quality(0.5, steady=True, growing=False, warnings=(EVIL,), steps_found_by="whole"),
    )


def evil_trace() -> Tape:
    """A recording whose kernels and ops have such names."""
    tape = additions()
    for event in tape.events:
        event["name"] = event["name"].replace("add", f"add{EVIL}")
    return tape


@pytest.fixture
def typed(monkeypatch, capsys):
    """Types `gobrrr ARGS…` and returns all that reaches the terminal."""

    def typed(*args: object) -> str:
        monkeypatch.setattr(sys, "argv", ["gobrrr", *map(str, args)])
        with pytest.raises(SystemExit):
            cli.main()
        return "".join(capsys.readouterr())

    return typed


@pytest.fixture
def files(tmp_path):
    """An Exam and a trace, of names that a shell would take apart."""
    kept, recorded = tmp_path / "an exam.json", tmp_path / "a trace.json"
    schema.write(evil_exam(), kept)
    evil_trace().save(recorded)
    return kept, recorded


@pytest.mark.parametrize("command", ["show", "trace", "compare", "compare both"])
def test_a_page_holds_no_control_characters_and_the_next_command_is_quoted(typed, files, command):
    kept, recorded = files
    given = {"show": [kept], "trace": [recorded], "compare": [recorded, recorded], "compare both": [kept, kept]}[
        command
    ]
    page = typed(command.split()[0], *given)
    assert not CONTROLS & set(page)
    assert "owned" in page or command == "compare"
    assert f"'{given[0]}'" in page.replace("\n", "")


def test_an_error_holds_none_either(typed, tmp_path):
    assert not CONTROLS & set(typed("show", tmp_path / EVIL.replace("/", "")))
    assert not CONTROLS & set(typed(EVIL))


def test_our_own_styles_still_reach_the_terminal(monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    show_page(Text(f"bold{EVIL}", style="bold"))
    assert capsys.readouterr().out.startswith("\x1b[1mbold\N{REPLACEMENT CHARACTER}]0;owned")


def test_lines_and_letters_stay():
    assert printable("a → µ\n") == "a → µ\n"


def test_a_terminal_without_unicode_is_told_the_units_and_sees_the_bars():
    raw = BytesIO()
    file = TextIOWrapper(raw, encoding="ascii", errors="replace")
    show_page(Text("353 µs → 2× ██▌ 日"), file)
    file.flush()
    assert raw.getvalue().decode().startswith("353 us > 2x ### ")
