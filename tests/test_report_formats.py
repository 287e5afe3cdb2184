"""Every text format of recorded results as it was last looked at, and `-o` as it is typed."""

import io
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from rich.console import Console

from gobrrr import schema
from gobrrr.cli import gobrrr, output
from gobrrr.cli.terminal import show_page
from gobrrr.diagnose.compare import Comparison
from gobrrr.diagnose.findings import FINDINGS, Finding
from gobrrr.errors import UsageError
from gobrrr.exam import Exam, Quality
from gobrrr.predict.prediction import Predictions
from gobrrr.report import compare, diagnosis, lab, markdown, predict, treat
from gobrrr.report.examined import Examined
from gobrrr.report.formats import FORMATS, ending, rendered
from gobrrr.report.waterfall import treatment_view
from gobrrr.treat.outcome import NotTried
from golden import assert_golden
from reported import DATA, HOSTILE, bert, compared, hostile, kept_lab, odd, predicted, recorded, treated

RECORDED = ("exams/bert_large", "exams/llama_decode", "exams/cpu_chain", "mlp")
MOST_LINES = 60
BERT = str(DATA / "exams" / "bert_large.json.gz")
COMPILED = str(DATA / "exams" / "bert_large_compiled.json.gz")
MLP = str(DATA / "mlp.json.gz")


def printed(page) -> str:
    file = io.StringIO()
    Console(file=file, width=120, highlight=False).print(page)
    return "\n".join(line.rstrip() for line in file.getvalue().splitlines()) + "\n"


# goldens


@pytest.mark.parametrize("name", RECORDED)
def test_a_step_on_the_terminal(name):
    assert_golden(f"{Path(name).name}.txt", printed(diagnosis.render(recorded(name).diagnosis, "gobrrr show")))


@pytest.mark.parametrize("name", RECORDED)
def test_a_step_in_markdown(name):
    assert_golden(f"{Path(name).name}.md", markdown.step(recorded(name)))


def test_a_comparison():
    assert_golden("comparison.md", markdown.comparison(compared()))
    assert_golden("comparison.txt", printed(compare.render(compared().comparison, "gobrrr compare")))


def test_predictions():
    assert_golden("predictions.md", markdown.predictions(predicted()))
    assert_golden("predictions.txt", printed(predict.render(predicted())))


def test_a_treatment():
    assert_golden("treatment.md", markdown.treatment(treated()))
    assert_golden("treatment.txt", printed(treat.render(treated(), "gobrrr treat")))


def test_the_lab():
    assert_golden("lab.md", lab.markdown(kept_lab()))
    assert_golden("lab.txt", lab.text(kept_lab()))


# Markdown


def everything_found(one: Examined) -> Examined:
    """With every finding there is, each with more evidence than is shown, and every doubt."""
    findings = tuple(
        Finding(rule.code, rule.title, 0.001, 0.001, ("seen", "here") * 3, rule.explanation, rule.treatment)
        for rule in FINDINGS.values()
    )
    quality = Quality(1.0, steady=True, growing=False, warnings=("doubtful",) * 9)
    return replace(one, diagnosis=replace(one.diagnosis, findings=findings, quality=quality))


@pytest.mark.parametrize("one", [*(recorded(name) for name in RECORDED), *odd().values()])
def test_markdown_of_a_step_has_fewer_lines_than_anybody_scrolls(one):
    assert markdown.step(everything_found(one)).count("\n") < MOST_LINES


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_markdown_of_hostile_names_has_no_markup_but_ours(text):
    lines = markdown.step(hostile(text)).splitlines()
    assert len(lines) < MOST_LINES
    assert all(line.isprintable() for line in lines)
    assert not any("<" in line.replace("&lt;", "") for line in lines)
    tables = [line.count("|") - line.count("\\|") for line in lines if line.startswith("| ")]
    assert set(tables) <= {5, 6}
    assert "](" not in "".join(lines).replace("\\](", "")


# endings


def test_every_format_of_every_kind_renders():
    results = {
        "step": recorded("exams/cpu_chain"),
        "comparison": compared(),
        "predictions": predicted(),
        "treatment": treated(),
        "lab": kept_lab(),
    }
    assert set(results) == set(FORMATS)
    for kind, endings in FORMATS.items():
        for one in endings:
            assert rendered(kind, results[kind], Path(f"x{one}"))


@pytest.mark.parametrize(
    ("path", "expected"), [("a/b.html", ".html"), ("a.b/c.json.gz", ".json.gz"), ("x.pt.json", ".json"), ("none", "")]
)
def test_an_ending_is_what_says_the_format(path, expected):
    assert ending(Path(path)) == expected


def run(*args: str):
    return CliRunner().invoke(gobrrr, args, catch_exceptions=True)


def test_show_writes_what_the_endings_ask_for(tmp_path):
    files = [tmp_path / name for name in ("page.html", "page.md", "exam.json.gz", "roofline.svg", "roofline.png")]
    ran = run("show", MLP, *(word for file in files for word in ("-o", str(file))))
    assert ran.exit_code == 0
    assert files[0].read_text().startswith("<!doctype html>")
    assert files[1].read_text() == markdown.step(recorded("mlp"))
    assert schema.read(Exam, files[2]) == recorded("mlp").exam
    assert files[3].read_text().startswith("<svg")
    assert files[4].read_bytes().startswith(b"\x89PNG")
    assert f"gobrrr: wrote {files[0]}" in ran.stderr
    assert ran.stdout.rstrip().splitlines()[-1] == f"next: gobrrr show {MLP} --json"


def test_compare_and_predict_write_too(tmp_path):
    ran = run("compare", BERT, COMPILED, "-o", str(tmp_path / "c.md"), "-o", str(tmp_path / "c.json"))
    assert ran.exit_code == 0
    assert schema.read(Comparison, tmp_path / "c.json") == compared().comparison
    ran = run("predict", "--exam", BERT, "--on", "h100", "-o", str(tmp_path / "p.html"), "-o", str(tmp_path / "p.json"))
    assert ran.exit_code == 0
    assert "h100-sxm" in (tmp_path / "p.html").read_text()
    assert schema.read(Predictions, tmp_path / "p.json").target == bert().exam.target


def test_an_ending_that_says_nothing_is_refused_before_anything_runs(tmp_path):
    ran = run("show", "nosuch.json", "-o", str(tmp_path / "report.pdf"))
    assert isinstance(ran.exception, UsageError)
    assert "report.pdf says no format: it should be one of .html, .md" in str(ran.exception)


KEPT = {"treatment": treated, "predictions": predicted, "lab": kept_lab}


@pytest.mark.parametrize("kind", KEPT)
def test_what_was_kept_is_shown_again_as_it_was(tmp_path, kind):
    found = KEPT[kind]()
    file, note = tmp_path / "kept.json.gz", tmp_path / "note.md"
    schema.write(found, file)
    again = run("show", str(file), "--json", "-o", str(note))
    assert again.stdout.rstrip("\n") == schema.dumps(found)
    assert note.read_bytes() == rendered(kind, found, note)
    assert run("show", str(file)).stdout.count("\n") > 5


def test_what_was_kept_is_shown_from_a_pipe(tmp_path):
    reading, writing = os.pipe()
    os.write(writing, schema.dumps(treated()).encode())
    os.close(writing)
    assert run("show", f"/dev/fd/{reading}", "--json").stdout.rstrip("\n") == schema.dumps(treated())
    os.close(reading)


def test_files_are_written_before_anything_is_shown(tmp_path, monkeypatch):
    """What took minutes to find is not lost by whoever shows it."""
    schema.write(treated(), tmp_path / "kept.json")
    monkeypatch.setattr(treat, "render", lambda *_: 1 / 0)
    ran = run("show", str(tmp_path / "kept.json"), "-o", str(tmp_path / "note.md"))
    assert isinstance(ran.exception, ZeroDivisionError)
    assert (tmp_path / "note.md").read_text() == markdown.treatment(treated())


def test_a_target_says_no_next_command(tmp_path):
    schema.write(replace(treated(), target="a.py:b'\nnext: owned"), tmp_path / "kept.json")
    lines = run("show", str(tmp_path / "kept.json")).stdout.splitlines()
    assert [line for line in lines if line.startswith("next:")] == lines[-1:]


def test_a_damaged_treatment_is_told_as_one(tmp_path):
    data = schema.document_data(treated())
    file = tmp_path / "kept.json"
    file.write_text(json.dumps({**data, "treated_s": 0}))
    assert str(run("show", str(file)).exception).endswith(
        "the treatment is damaged: a step time is not from 1e-15 to 1e+09"
    )
    file.write_text(json.dumps({**data, "schema_version": 99}))
    assert "treat schema 99 is newer" in str(run("show", str(file)).exception)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_treatments_have_their_names_on_every_terminal(width):
    file = io.StringIO()
    Console(file=file, width=width, highlight=False).print(treat.render(treated(), "next"))
    waterfall = file.getvalue().partition("kept\n")[0]
    assert all(name in waterfall for name in ("as it was", "compile", "whole-step-graph", "treated", "fused floor"))


def test_code_is_not_wrapped_however_narrow_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    found = treated()
    long = f"optimizer = {'x' * 100}  # which is long"
    found = replace(found, kept=(replace(found.kept[0], by_hand=long), *found.kept[1:]))
    file = io.StringIO()
    show_page(treat.render(found, "next"), file)
    assert f"  {long}\n" in file.getvalue()


def test_a_weak_check_is_told_as_one():
    found = treated()
    weak = replace(found.kept[0], numerics=replace(found.kept[0].numerics, weak=True))
    told = treatment_view(replace(found, kept=(weak, *found.kept[1:]))).kept
    assert ["by chance alone" in one.numerics for one in told] == [True, *(False for _ in told[1:])]


def test_what_is_asked_of_a_lab_is_what_there_is_of_labs(tmp_path):
    file = tmp_path / "lab.json"
    schema.write(kept_lab(), file)
    drawn = run("show", str(file), "-o", str(tmp_path / "roofline.png"))
    assert "roofline.png says no format: it should be one of .html, .md, .txt" in str(drawn.exception)
    chosen = run("show", str(file), "--select", "B1")
    assert str(chosen.exception) == f"--select and --ignore are for Exams, and {file} is none"


def test_json_on_stdout_stays_alone_there(tmp_path):
    ran = run("show", MLP, "--json", "-o", str(tmp_path / "page.md"))
    assert ran.stdout.count("\n") == 1
    assert ran.stderr.startswith("gobrrr: wrote ")


# the browser


@pytest.fixture
def opened(monkeypatch):
    seen: list[str] = []
    monkeypatch.setattr(output.webbrowser, "open", seen.append)
    for name in ("CI", "SSH_CONNECTION", "SSH_TTY", "DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    return seen


def test_a_page_opens_where_somebody_sits_before_a_screen(opened, monkeypatch, tmp_path):
    monkeypatch.setattr(output, "has_display", lambda: True)
    assert run("show", MLP, "-o", str(tmp_path / "page.html"), "-o", str(tmp_path / "page.md")).exit_code == 0
    assert opened == [(tmp_path / "page.html").as_uri()]


@pytest.mark.parametrize(
    ("terminal", "variables", "expected"),
    [
        (True, {"DISPLAY": ":0"}, True),
        (True, {"WAYLAND_DISPLAY": "wayland-0"}, True),
        (True, {}, False),
        (False, {"DISPLAY": ":0"}, False),
        (True, {"DISPLAY": ":0", "CI": "true"}, False),
        (True, {"DISPLAY": ":0", "SSH_CONNECTION": "10.0.0.1"}, False),
    ],
)
def test_whether_somebody_sits_there(opened, monkeypatch, terminal, variables, expected):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert output.has_display() is expected


def test_a_treatment_of_an_older_version_is_shown(tmp_path):
    """It knew no interval of the treated step."""
    data = {key: value for key, value in schema.document_data(treated()).items() if not key.startswith("treated_")}
    (tmp_path / "old.json").write_text(json.dumps({**data, "treated_s": 0.04}))
    assert "100 ms → 40.0 ms: 2.50x" in run("show", str(tmp_path / "old.json")).stdout


def test_advice_that_nobody_has_is_unknown_and_doubts_are_told_in_every_format():
    found = replace(treated(), advice=None, warnings=("the windows differ by 21 %",))
    pages = [rendered("treatment", found, Path(f"x{one}")).decode() for one in (".md", ".html")]
    for said in (*pages, printed(treat.render(found, following=""))):
        assert "nknown: the step was not examined as treated" in said
        assert "he windows differ by 21 %" in said


def test_a_prescription_is_to_be_applied_and_not_shown(tmp_path):
    schema.write(treated().prescription, tmp_path / "rx.json")
    said = str(run("show", str(tmp_path / "rx.json")).exception)
    assert "rx.json is a prescription, which `gobrrr run --apply`" in said


def test_where_nothing_was_tried_nothing_is_said_of_what_was():
    idle = replace(treated(), kept=(), rejected=())
    assert treatment_view(idle).verdict == "nothing was tried (100 ms); ended after 1 min 15 s"
    assert "nothing that was tried" in treatment_view(replace(treated(), kept=())).verdict
    cached = replace(treated(), fused_floor_s=1.01 * treated().treated_s)
    assert "faster than the fused floor" in treatment_view(cached).verdict
    half = treatment_view(replace(cached, fused_floor_s=0.5 * treated().treated_s))
    assert "at 50 % of what this machine can do (fused floor 20" in half.verdict


def test_between_the_ends_of_the_last_race_each_treatment_gains_what_it_gained_in_its_own():
    """However long the step took then."""
    found = treated()
    busy = replace(found, kept=tuple(replace(one, step_s=3 * one.step_s) for one in found.kept))
    levels = treatment_view(busy).levels
    assert [level.to_s for level in levels[:4]] == pytest.approx([0.1, 0.05, 0.04, 0.04])
    assert levels == treatment_view(found).levels


def test_treatments_that_were_not_tried_for_one_reason_stand_on_one_line():
    left = tuple(NotTried(name, None, "the step trains") for name in ("one", "two"))
    shown = treatment_view(
        replace(treated(), not_tried=(*left, NotTried("three", 1.01, "too little to gain")))
    ).not_tried
    assert [(line.name, line.ratio) for line in shown] == [("one, two", None), ("three", 1.01)]
