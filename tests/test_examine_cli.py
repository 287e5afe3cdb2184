"""`gobrrr examine`, `show` and `demo` as typed, with made-up ceilings and few steps."""

import gzip
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from gobrrr import cli, examination, history, schema
from gobrrr.cli import demo
from gobrrr.exam import BatchTest, Exam
from gobrrr.examination import examine
from test_count_cli import EXAMPLE, PAIR, TRAINED, written
from test_exam import CPU, full_exam, small_program
from test_examination import probed

__all__ = ["probed", "written"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "state" / "gobrrr" / "exams"


@pytest.fixture
def gobrrr(monkeypatch, capfd):
    """Types `gobrrr ARGS…` and returns exit code, stdout and stderr."""
    monkeypatch.setenv("KINETO_LOG_LEVEL", "6")

    def typed(*args: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["gobrrr", *args])
        monkeypatch.setattr(sys, "path", [*sys.path])
        with pytest.raises(SystemExit) as exited:
            cli.main()
        return exited.value.code or 0, *capfd.readouterr()

    yield typed
    sys.modules.pop("_gobrrr_user_mine", None)


SCRIPT = """
import sys
asked = list(sys.argv)


def make():
    assert asked == sys.argv and len(asked) == 1 and asked[0].endswith("mine.py"), sys.argv
    return nn.Linear(4, 3), torch.ones(2, 4)
"""


def test_a_file_finds_none_of_our_words_on_its_command_line(gobrrr, written):
    code, _, err = gobrrr("examine", written(SCRIPT))
    assert code == 0, err
    assert sys.argv[1] == "examine", "and afterwards they are ours"


# examine


def test_the_exam_is_kept_and_the_next_command_shows_it(gobrrr, written):
    code, out, _ = gobrrr("examine", written(PAIR))
    assert code == 0
    assert out.rstrip().splitlines()[-1] == "next: gobrrr show last"
    code, again, err = gobrrr("show", "last")
    assert (code, err) == (0, "")
    assert again.splitlines()[:-1] == out.splitlines()[:-1]


def test_json_is_one_line_and_what_show_says_of_the_kept_exam(gobrrr, written):
    code, out, _ = gobrrr("examine", written(TRAINED), "--json")
    assert (code, out.count("\n")) == (0, 1)
    assert json.loads(out)["batch_test"] is None
    assert gobrrr("show", "--json") == (0, out, "")


def test_an_exam_with_a_file_of_its_own_is_shown_from_there(gobrrr, written):
    _, out, _ = gobrrr("examine", written(PAIR), "-o", "mine.json.gz")
    assert out.rstrip().splitlines()[-1] == "next: gobrrr show mine.json.gz"
    assert gobrrr("show", "mine.json.gz")[0] == 0


def test_where_nothing_can_be_kept_the_exam_is_shown_and_a_file_offered(gobrrr, written, folder):
    folder.parent.parent.write_text("in the way")
    code, out, err = gobrrr("examine", written(PAIR))
    assert code == 0
    assert "gobrrr: examined, but not kept: " in err
    assert out.rstrip().splitlines()[-1] == "next: gobrrr examine mine.py:make -o exam.json.gz"


def test_the_batch_test_stands_in_the_report_and_in_the_json(gobrrr, written):
    code, out, _ = gobrrr("examine", written(TRAINED), "--batch-test")
    assert code == 0
    assert "batch test  twice the batch takes " in out
    shown = json.loads(gobrrr("show", "--json")[1])["batch_test"]
    assert set(shown) == {"ratio", "ratio_low", "ratio_high", "bytes_ratio", "verdict", "explanation"}
    assert shown["ratio_low"] <= shown["ratio"] <= shown["ratio_high"]


CLOSED = """
def make():
    labels = torch.randint(512, (64,))
    return Workload(nn.Linear(512, 512), torch.randn(64, 512), loss=lambda y: nn.functional.cross_entropy(y, labels))
"""


def test_labels_in_the_loss_are_told_and_the_examination_is_shown_all_the_same(gobrrr, written):
    code, out, _ = gobrrr("examine", written(CLOSED), "--batch-test")
    assert code == 0
    assert "where the time goes" in out
    assert "doubt: there is no batch test: the step with twice the batch raised ValueError at mine.py:7" in " ".join(
        out.split()
    )
    again = json.loads(gobrrr("show", "--json")[1])
    assert again["batch_test"] is None
    assert again["quality"]["warnings"][-1].endswith("belong into Workload(inputs=...)")


def test_a_bare_step_has_no_batch_to_double(gobrrr, written):
    body = "def make():\n    x = torch.ones(3)\n    return lambda: x.exp()\n"
    assert gobrrr("examine", written(body), "--batch-test") == (
        2,
        "",
        "gobrrr: a bare step has no batch that could be doubled: return a gobrrr.Workload(model, inputs)\n",
    )


def test_memory_that_runs_out_is_6_and_one_line(gobrrr, written):
    body = "def make():\n    return lambda: torch.empty(1 << 50)\n"
    code, out, err = gobrrr("examine", written(body))
    assert (code, out) == (6, "")
    assert err.startswith("gobrrr: the step ran out of memory at mine.py:5: ")
    assert err.count("\n") == 1


def test_a_step_that_varies_is_3_and_one_line(gobrrr, written):
    body = "def make():\n    seen = []\n    return lambda: (seen.append(1), torch.ones(len(seen)) + 1)\n"
    code, out, err = gobrrr("examine", written(body))
    assert (code, out) == (3, "")
    assert err.startswith("gobrrr: the step does not do the same each time (")
    assert err.count("\n") == 1


RECORDS = """
from gobrrr import examination
from gobrrr.cli.examine import examined
from gobrrr.timing.recording import recorded
examination.examine = lambda factory, *_, **__: recorded(factory, lambda: None, ops=True)
assert examined("mine.py:make", None).ops
"""


def test_the_profilers_own_lines_are_not_shown(written):
    """In a process of its own: the profiler asks once whether it may talk."""
    written(PAIR)
    environment = {**os.environ, "PYTHONPATH": str(Path(cli.__file__).parents[2])}
    environment.pop("KINETO_LOG_LEVEL", None)
    command = [sys.executable, "-c", RECORDS]
    ran = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert (ran.stdout, ran.stderr) == ("", "")


# show


def test_show_without_any_exam_is_4_and_says_how_to_make_one(gobrrr):
    assert gobrrr("show") == (4, "", "gobrrr: no Exam has been kept yet: gobrrr examine FILE.py:NAME makes one\n")


def whole() -> bytes:
    return gzip.compress(schema.dumps(full_exam(small_program())).encode())


def newer() -> bytes:
    data = {**schema.document_data(full_exam(small_program())), "schema_version": Exam.VERSION + 1}
    return gzip.compress(json.dumps(data).encode())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda: whole()[:-20], "is not a readable exam file: Compressed file ended before"),
        (lambda: b"\x00" + whole(), "is not a readable exam file: Not a gzipped file"),
        (lambda: gzip.compress(b"not json"), "is not a readable exam file: Expecting value"),
        (lambda: b"", "is not a readable exam file: Expecting value"),
        (newer, f"exam schema {Exam.VERSION + 1} is newer than {Exam.VERSION}, our newest: upgrade gobrrr"),
        (lambda: gzip.compress(schema.dumps(CPU).encode()), "exam lacks 'target'"),
        (lambda: gzip.compress(b"[1, 2]"), "not an exam document: it has no schema_version"),
        (lambda: gzip.compress(b'{"traceEvents": []}'), "not an exam document: it is a trace, for `gobrrr trace`"),
    ],
    ids=["truncated", "corrupt", "no json", "empty", "newer", "another document", "a list", "a trace"],
)
def test_a_file_that_holds_no_exam_is_4_and_one_line(gobrrr, tmp_path, content, said):
    file = tmp_path / "exam.json.gz"
    file.write_bytes(content())
    code, out, err = gobrrr("show", str(file))
    assert (code, out) == (4, "")
    assert err.startswith(f"gobrrr: {file}")
    assert said in err
    assert err.count("\n") == 1


def test_a_folder_and_a_file_that_is_not_there_are_4(gobrrr, tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        code, out, err = gobrrr("show", str(path))
        assert (code, out, err.count("\n")) == (4, "", 1)


def test_a_verdict_on_the_batch_is_told_with_its_interval(gobrrr):
    tested = replace(full_exam(small_program()), batch_test=BatchTest(((1.0, 1.02),) * 3, 3000.0))
    history.keep(tested, print)
    out = gobrrr("show")[1]
    assert "batch test  twice the batch takes 1.02x the time (1.02x to 1.02x)" in out
    assert "→ a larger batch costs almost nothing: overhead-bound" in out


def test_a_step_that_beats_its_floor_puts_the_ceilings_in_doubt(gobrrr):
    for window_s, doubted in ((1.0, False), (1e-12, True)):
        history.keep(replace(full_exam(small_program()), window_step_s=(window_s,) * 3), print)
        assert ("doubt: quicker than its floor" in gobrrr("show")[1]) is doubted


# demo


def test_the_demo_explains_every_stage_and_ends_with_a_verdict(gobrrr, monkeypatch):
    monkeypatch.setattr(demo, "EFFORT", examination.CPU_STEP_EFFORT)
    told = []
    examine(lambda: lambda: None, "made.py:up", lambda _number, _total, what: told.append(what))
    assert told == list(demo.EXPLAINED)
    code, out, err = gobrrr("demo")
    assert code == 0
    assert [line for line in err.splitlines() if "USDT" not in line][:5] == list(demo.EXPLAINED.values())
    assert "of what this machine can do" in " ".join(out.split())
    assert "patients/transformer.py:training --batch-test" in "".join(out.splitlines()[-2:])
    assert gobrrr("show")[0] == 0


def test_the_example_can_be_run_on_twice_the_batch():
    """What users read does what it says."""
    import runpy

    from gobrrr.timing.batch import doubled

    workload = runpy.run_path(str(EXAMPLE))["training"]()
    twice = doubled(workload).inputs
    assert {key: len(ids) for key, ids in twice.items()} == dict.fromkeys(("ids", "labels"), 8)
