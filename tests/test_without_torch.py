"""`gobrrr show` in an environment of its own that has what the core needs, and no torch."""

import json
import os
import re
import subprocess
import venv
from importlib.metadata import distribution, requires
from importlib.util import find_spec
from pathlib import Path

import pytest

import gobrrr
from gobrrr import schema
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam
from reported import kept_lab, predicted, treated
from traces import shared

RECORDED = Path(__file__).parent / "data" / "mlp.json.gz"
"""A training step of two linear layers, on a CPU, with its batch test."""


def core() -> set[str]:
    """The packages that gobrrr names as its dependencies, extras left out, and what those need in turn."""
    found, todo = set(), ["gobrrr"]
    while todo:
        for needed in requires(todo.pop()) or []:
            name = re.match(r"[\w.-]+", needed)[0]
            if ";" not in needed and name not in found:
                found.add(name)
                todo.append(name)
    return found


def modules(package: str) -> set[str]:
    files = distribution(package).files or []
    return {file.parts[0].removesuffix(".py") for file in files if file.suffix == ".py" and ".." not in file.parts}


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    """An interpreter that finds gobrrr and the core, linked from here, and nothing else."""
    home = tmp_path_factory.mktemp("torchless")
    venv.create(home, with_pip=False)
    packages = next(home.glob("lib/python*/site-packages"))
    for name in {"gobrrr", *(module for package in core() for module in modules(package))}:
        spec = find_spec(name)
        where = Path(spec.origin)
        where = where.parent if spec.submodule_search_locations else where
        (packages / where.name).symlink_to(where)
    return home / "bin" / "python"


def typed(python: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = "from gobrrr.cli import main; main()"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        [python, "-W", "error", "-c", code, *args], capture_output=True, text=True, env=environment, check=False
    )


def test_torch_is_not_there(python):
    looked = subprocess.run([python, "-I", "-c", "import torch"], capture_output=True, text=True, check=False)
    assert "No module named 'torch'" in looked.stderr


def test_an_exam_is_shown_to_a_person(python):
    shown = typed(python, "show", str(RECORDED))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "mlp.py:training" in shown.stdout
    assert "where the time goes" in shown.stdout
    assert "batch test" in shown.stdout
    assert shown.stdout.rstrip().splitlines()[-1].endswith("-o report.html")


@pytest.mark.parametrize("kept", [treated, predicted, kept_lab], ids=lambda kept: kept.__name__)
def test_whatever_else_was_kept_is_shown_too(python, tmp_path, kept):
    schema.write(kept(), tmp_path / "kept.json")
    shown = typed(python, "show", str(tmp_path / "kept.json"))
    assert (shown.returncode, shown.stderr) == (0, "")
    assert shown.stdout.startswith("gobrrr ")


def test_an_exam_becomes_a_page(python, tmp_path):
    """With the extra `html`, which is no part of the core, linked for this test alone."""
    library = find_spec("vl_convert")
    if library is None:
        pytest.skip("no vl-convert-python, which brings the charts' library")
    link = next(python.parents[1].glob("lib/python*/site-packages")) / "vl_convert"
    link.symlink_to(Path(library.origin).parent)
    try:
        shown = typed(python, "show", str(RECORDED), "-o", str(tmp_path / "report.html"))
    finally:
        link.unlink()
    assert (shown.returncode, shown.stderr) == (0, f"gobrrr: wrote {tmp_path / 'report.html'}\n")
    assert "<h1>" in (tmp_path / "report.html").read_text()


def test_without_the_extra_a_page_names_it_and_markdown_needs_none(python, tmp_path):
    shown = typed(python, "show", str(RECORDED), "-o", str(tmp_path / "report.html"))
    assert shown.returncode == 6
    assert shown.stderr == "gobrrr: vl_convert is needed here and not installed: pip install 'gobrrr[html]'\n"
    assert typed(python, "show", str(RECORDED), "-o", str(tmp_path / "report.md")).returncode == 0


def test_findings_are_explained(python):
    told = typed(python, "explain", "B301")
    assert (told.returncode, told.stderr) == (0, "")
    assert told.stdout.startswith("B301 fp32 matmuls where faster units exist\n")


def test_the_json_is_what_this_environment_says_of_it(python):
    shown = typed(python, "show", str(RECORDED), "--json")
    assert (shown.returncode, shown.stderr) == (0, "")
    here = json.loads(schema.dumps(diagnose(schema.read(Exam, RECORDED))))
    assert json.loads(shown.stdout) == here


def test_a_trace_of_common_ops_has_its_work_counted(python, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    read = typed(python, "trace", str(shared("gpt2_train_b8x1024_bf16.json.gz")), "--json")
    assert read.returncode == 0
    found = json.loads(read.stdout)
    assert found["flops_dense"] == pytest.approx(7.154e12, rel=5e-3)
    assert found["coverage"]["formula"] > 0.97
    assert any("torch is not installed" in warning for warning in found["quality"]["warnings"])


@pytest.mark.parametrize("args", [("examine", "mine.py:make"), ("demo",), ("demo", "B201"), ("count", "mine.py:make")])
def test_what_needs_torch_says_so(python, args, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("")
    ran = typed(python, *args)
    assert (ran.returncode, ran.stdout) == (6, "")
    assert ran.stderr == "gobrrr: torch is needed here and not installed: pip install 'gobrrr[torch]'\n"


def test_the_copy_under_test_is_the_one_that_was_linked(python):
    where = subprocess.run(
        [python, "-c", "import gobrrr; print(gobrrr.__file__)"], capture_output=True, text=True, check=True
    )
    assert Path(where.stdout.strip()).resolve() == Path(gobrrr.__file__).resolve()
