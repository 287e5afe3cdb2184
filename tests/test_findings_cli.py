"""`gobrrr explain`, `gobrrr demo CODE`, `--select` and `--ignore` as typed."""

import json
from pathlib import Path

import pytest

from gobrrr import schema
from gobrrr.cli import demo
from gobrrr.cli.explain import explained
from gobrrr.diagnose.findings import FINDINGS
from gobrrr.report.explain import CHAPTERS, markdown
from gobrrr.timing.steady import StepEffort
from test_exam import exam, kernel
from test_examination import probed
from test_examine_cli import folder, gobrrr

__all__ = ["folder", "gobrrr", "probed"]

PAGE = Path(__file__).parents[1] / "docs" / "findings.md"


# explain


def test_without_a_code_all_findings_are_listed(gobrrr):
    code, out, err = gobrrr("explain")
    assert (code, err) == (0, "")
    assert all(f"{each} " in out for each in FINDINGS)
    assert out.rstrip().splitlines()[-1] == "next: gobrrr explain B101"


def test_a_code_is_explained_with_its_fix_and_its_patient(gobrrr):
    code, out, _ = gobrrr("explain", "b202")
    assert code == 0
    assert out.startswith("B202 unfused attention\n")
    assert "F.scaled_dot_product_attention(q, k, v, is_causal=True)" in out
    assert out.rstrip().splitlines()[-1] == "next: gobrrr demo B202"


def test_a_finding_that_no_model_can_have_says_so(gobrrr):
    _, out, _ = gobrrr("explain", "B503")
    assert "no model has this: heat and power limits are the machine's" in " ".join(out.split())
    assert out.rstrip().splitlines()[-1] == "next: gobrrr explain"


def test_json_has_every_page_in_full(gobrrr):
    told = json.loads(gobrrr("explain", "--json")[1])
    assert told["schema_version"] == 1
    assert [page["code"] for page in told["findings"]] == sorted(FINDINGS)
    assert all(all(page.values()) for page in told["findings"])


def test_a_code_that_there_is_not_is_a_usage_error(gobrrr):
    code, out, err = gobrrr("explain", "B299")
    assert (code, out) == (2, "")
    assert err.startswith("gobrrr: no finding's code begins with 'B299'; near it: B2")


def test_the_page_in_the_docs_is_what_explain_writes(gobrrr):
    assert PAGE.read_text() == markdown(explained()) + "\n", "gobrrr explain --markdown > docs/findings.md"
    assert gobrrr("explain", "--markdown")[1] == PAGE.read_text()


def test_every_code_has_a_chapter():
    assert {code[:2] for code in FINDINGS} == set(CHAPTERS)


# --select and --ignore


@pytest.fixture
def ill(tmp_path) -> str:
    made = exam(kernel(0, 1.0), host_s=10.0, step_profiled_s=40.0)
    schema.write(made, tmp_path / "ill.json")
    return str(tmp_path / "ill.json")


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((), ["B101", "B504"]),
        (("--select", "B1"), ["B101"]),
        (("--select", "B1,B504"), ["B101", "B504"]),
        (("--ignore", "B101"), ["B504"]),
        (("--select", "B2"), []),
    ],
)
def test_show_looks_for_what_is_selected(gobrrr, ill, options, expected):
    code, out, _ = gobrrr("show", ill, "--json", *options)
    assert code == 0
    assert [one["code"] for one in json.loads(out)["findings"]] == expected


@pytest.mark.parametrize("option", ["--select", "--ignore"])
def test_a_wrong_code_is_told_before_anything_is_run(gobrrr, ill, option):
    for typed in (("show", ill), ("examine", "nowhere.py:make")):
        code, out, err = gobrrr(*typed, option, "B1,B700")
        assert (code, out) == (2, "")
        assert "no finding's code begins with 'B700'" in err


# demo CODE


@pytest.fixture
def hasty(monkeypatch):
    effort = StepEffort(warmup_steps=3, warmup_s=0.1, window_s=0.001, window_steps=1, windows=3, budget_s=0.1)
    monkeypatch.setattr(demo, "EFFORT", effort)


def test_a_patient_is_examined_and_its_twin_offered(gobrrr, probed, hasty):
    code, out, err = gobrrr("demo", "B505")
    assert code == 0
    assert err.startswith("Your patient uses an op that has no formula.\n")
    assert "B505 uncounted work" in out
    assert out.rstrip().splitlines()[-1] == "next: gobrrr demo B505 --healthy"


def test_the_twin_is_healthy_and_the_finding_explained_next(gobrrr, probed, hasty):
    code, out, err = gobrrr("demo", "B505", "--healthy")
    assert code == 0
    assert err.startswith("The twin of a patient that uses an op that has no formula.\n")
    assert "B505" not in "".join(out.splitlines()[:-1])
    assert out.rstrip().splitlines()[-1] == "next: gobrrr explain B505"


@pytest.mark.parametrize(
    ("typed", "code", "said"),
    [
        ("B999", 2, "no finding's code begins with 'B999'"),
        ("B501", 2, "there is no patient for B501: gobrrr itself would have to break"),
        ("B2", 2, "there is no patient for B2: name one finding, as B201"),
    ],
)
def test_what_has_no_patient_says_why(gobrrr, typed, code, said):
    exit_code, out, err = gobrrr("demo", typed)
    assert (exit_code, out) == (code, "")
    assert said in err


def test_a_disease_of_gpus_is_not_shown_without_one(gobrrr, monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    code, out, err = gobrrr("demo", "B302")
    assert (code, out) == (6, "")
    assert err.startswith("gobrrr: B302 exists on a GPU only, and there is none here")
