"""Two diagnoses side by side."""

import json
import re
from dataclasses import replace
from io import StringIO

import pytest
from click.testing import CliRunner
from rich.console import Console

from gobrrr import schema
from gobrrr.cli import gobrrr
from gobrrr.diagnose.compare import compare
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import UsageError
from gobrrr.report import markdown
from gobrrr.report.compare import render
from gobrrr.report.examined import Compared, Examined
from gobrrr.report.pages import comparison as page
from gobrrr.trace_examination import exam_or_trace, examine_trace
from traces import Tape, additions, shared


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """Of this test alone."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def diagnosed(tape: Tape, path):
    return diagnose(examine_trace(tape.save(path)))


@pytest.fixture
def pair(tmp_path):
    """Two additions; and with kernels three times as long, one of them a subtraction."""
    slow = additions(steps=6, kernel_us=350.0)
    for place, event in enumerate(slow.events):
        if event["name"] == "aten::add" and event["args"]["External id"] % 4 == 1:
            event["name"], slow.events[place + 2]["name"] = "aten::sub", "sub_kernel"
    quick = additions(steps=6, kernel_us=100.0)
    return diagnosed(quick, tmp_path / "quick.json"), diagnosed(slow, tmp_path / "slow.json")


def test_a_step_beside_itself_has_not_changed(pair):
    made = compare(pair[0], pair[0])
    assert made.speedup == 1
    assert made.ops == ()


def test_slower_new_and_gone_ops_are_told_apart(pair):
    made = compare(*pair)
    assert made.speedup == pytest.approx(101 / 351, rel=0.02)
    assert {one.name: one.change for one in made.ops} == {"forward add": "slower", "forward sub": "new"}
    back = compare(pair[1], pair[0])
    assert {one.name: one.change for one in back.ops} == {"forward add": "faster", "forward sub": "gone"}


def test_seconds_of_different_machines_are_refused_unless_told(tmp_path, pair):
    tape = additions(steps=6, kernel_us=100.0)
    document = tape.document()
    document["deviceProperties"] = [{"id": 0, "name": "NVIDIA L4"}]
    path = tmp_path / "other.json"
    path.write_text(json.dumps(document))
    other = diagnose(examine_trace(path))
    with pytest.raises(UsageError, match=r"NVIDIA H200 and other.json on NVIDIA L4.*--across-machines"):
        compare(pair[1], other)
    made = compare(pair[1], other, across_machines=True)
    assert made.speedup is None
    (add,) = [one for one in made.ops if one.name == "forward add"]
    assert add.seconds is None
    assert add.of_ceiling.after > add.of_ceiling.before
    assert add.change == "faster"  # by what it reaches of its machine, not by seconds of two


def test_no_format_shows_seconds_of_different_machines(tmp_path):
    mine = examine_trace(additions(steps=6, kernel_us=100.0).save(tmp_path / "mine.json"))
    theirs = replace(mine, ceilings=replace(mine.ceilings, device="NVIDIA L4"), window_step_s=(777e-6,) * 3)
    sides = [Examined(one, diagnose(one)) for one in (mine, theirs)]
    found = compare(*(side.diagnosis for side in sides), across_machines=True)
    console = Console(file=StringIO(), width=80)
    console.print(render(found, "next"))
    compared = Compared(*sides, found)
    for text in (console.file.getvalue(), markdown.comparison(compared), page.render(compared).partition("<table>")[2]):
        assert "before" in text or "share" in text
        assert not re.search(r"\d (ms|µs|ns)\b", text)


def test_an_exam_and_a_trace_are_told_apart_by_the_file(tmp_path):
    path = additions().save(tmp_path / "t.json.gz")
    schema.write(exam_or_trace(path), tmp_path / "exam.json.gz")
    assert exam_or_trace(tmp_path / "exam.json.gz").target == "t.json.gz"


def test_the_command_prints_a_view_or_data(tmp_path):
    paths = [str(additions(kernel_us=us).save(tmp_path / f"{us}.json")) for us in (100, 300)]
    shown = CliRunner().invoke(gobrrr, ["compare", *paths])
    assert shown.exit_code == 0
    assert "slower" in shown.stdout
    data = json.loads(CliRunner().invoke(gobrrr, ["compare", *paths, "--json"]).stdout)
    assert data["ops"][0]["change"] == "slower"


def test_a_starved_data_loader_is_named():
    paths = [shared(f"public/v100_resnet50_workers{number}.json.gz") for number in (0, 4)]
    made = compare(*(diagnose(examine_trace(path, processes=1)) for path in paths))
    assert made.speedup > 1.2
    assert made.before.idle_s > 3 * made.after.idle_s
    cause, pair = next(iter(made.idle_causes_s.items()))
    assert cause == "data_loading"
    assert pair.before > 0.5 * made.before.idle_s
