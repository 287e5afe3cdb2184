"""Running programs with and without gobrrr, as processes, with made-up ceilings and few steps."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import gobrrr
from gobrrr import schema
from test_floors import CPU

SCRIPTS = Path(__file__).parent / "scripts"

BRIEF = """
import sys
from pathlib import Path
from gobrrr import examination, schema
from gobrrr.machine.ceilings import Ceilings
from gobrrr.timing.steady import StepEffort
ceilings = schema.read(Ceilings, Path("ceilings.json"))
examination.CPU_STEP_EFFORT = StepEffort(
    warmup_steps=2, warmup_s=1, window_s=0, window_steps=1, windows=3, budget_s=0
)
examination.measured = lambda device, *, only: ceilings
assert "torch" not in sys.modules
from gobrrr.cli import main
main()
"""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str
    folder: Path

    @cached_property
    def diagnosis(self) -> dict[str, Any]:
        return json.loads((self.folder / "diagnosis.json").read_text())

    @property
    def said(self) -> str:
        """What gobrrr itself wrote, as one line."""
        return " ".join(self.err.split())


def plainly(folder: Path, *args: str, **options: Any) -> Ran:
    """As `python ARGS…`."""
    return _ran([sys.executable, *args], folder, **options)


def attended(folder: Path, *args: str, **options: Any) -> Ran:
    """As `gobrrr run --json diagnosis.json ARGS…`."""
    schema.write(CPU, folder / "ceilings.json")
    return _ran([sys.executable, "-c", BRIEF, "run", "--json", "diagnosis.json", *args], folder, **options)


def environment(folder: Path) -> dict[str, str]:
    """One thread, for other processes want the machine too; nothing of the user's is read or written."""
    ours = {"PYTHONPATH": str(Path(gobrrr.__file__).parents[1]), "XDG_STATE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    return {**os.environ, **ours}


def _ran(command: list[str], folder: Path, **options: Any) -> Ran:
    options = {"capture_output": True, "text": True, "timeout": 300} | options
    ran = subprocess.run(command, check=False, cwd=folder, env=environment(folder), **options)
    return Ran(ran.returncode, ran.stdout, ran.stderr, folder)
