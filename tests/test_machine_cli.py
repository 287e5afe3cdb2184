import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from gobrrr import machine
from gobrrr.cli.machine import command
from gobrrr.errors import UsageError
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.doubts import Doubt

CEILINGS = Ceilings(
    device="a CPU",
    kind="cpu",
    threads=2,
    measured_at="2026-11-15T03:00:00+00:00",
    dram_bytes_per_s=2.4e10,
    doubts=(Doubt("it is crowded", "wait"),),
)


@pytest.fixture
def asked(monkeypatch):
    calls = []

    def fake(device=None, *, only=None, fresh=False, progress=None):
        calls.append((device, only, fresh))
        progress(1, 1, "memory bandwidth")
        return CEILINGS

    monkeypatch.setattr(machine, "measured", fake)
    return calls


def test_json_is_all_there_is_on_stdout_and_doubts_go_to_stderr(asked):
    result = CliRunner().invoke(command, ["--json"])
    assert json.loads(result.stdout)["dram_bytes_per_s"] == 2.4e10
    assert result.stderr == "gobrrr: it is crowded; wait\n"


def test_options_reach_the_measurement(asked):
    CliRunner().invoke(command, ["--fresh", "--device", "cuda:1", "--only", "dram", "--only", "matmul.bf16"])
    assert asked == [("cuda:1", ("dram", "matmul.bf16"), True)]


def test_without_options_everything_is_asked_for(asked):
    result = CliRunner().invoke(command, [])
    assert asked == [(None, None, False)]
    assert result.stdout.rstrip().endswith("next: gobrrr count FILE.py:NAME")
    assert result.stderr == ""


def test_errors_are_raised_and_left_to_the_one_place_of_exit_codes():
    result = CliRunner().invoke(command, ["--only", "matmul.bf61", "--device", "cpu"])
    assert isinstance(result.exception, UsageError)


def test_help_imports_no_torch():
    code = "import sys, gobrrr.cli.machine as m; assert m.command; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_reading_and_showing_ceilings_imports_no_torch():
    code = "import sys, gobrrr.machine, gobrrr.report.machine; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
