"""Results to report: recorded ones, made-up ones, and such as a stranger might send."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from gobrrr import schema
from gobrrr.diagnose.compare import compare
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam, Quality
from gobrrr.lab.result import Lab
from gobrrr.machine import datasheets
from gobrrr.predict.prediction import Predictions, WhatIf, from_exam
from gobrrr.report.examined import Compared, Examined
from gobrrr.timing.kernel import Sync
from gobrrr.treat.numerics import Check
from gobrrr.treat.outcome import Advice, Kept, NotTried, Prescription, Rejected, Treated
from test_exam import doing, exam, full_exam, kernel, small_program

DATA = Path(__file__).parent / "data"
H200 = Path(__file__).parents[1] / "benchmarks" / "results" / "h200"
LAB = H200 / "lab.json"

HOSTILE = {
    "script": "<script>owned = 1</script>",
    "end of script": "</script><script>owned = 2</script>",
    "image": "<img src=x onerror='owned = 3'>",
    "quotes": "\"'`><svg onload=alert(1)>",
    "template": "{{ 7 * 7 }}{% raw %}${7 * 7}",
    "markdown": "| a | b |\n# heading\n[x](javascript:alert(1))",
    "comment": "<!-- <script>",
    "controls": "\x1b]0;owned\x07\x00\r\n\x9b31m",
    "right to left": "\u202egnp.exe\u2066\u200f",
    "surrogate": "\udcff\udc80",
    "long": "x" * 1_000_000,
}


@cache
def recorded(name: str) -> Examined:
    """Of tests/data, diagnosed."""
    return examined(schema.read(Exam, DATA / f"{name}.json.gz"))


def examined(made: Exam) -> Examined:
    return Examined(made, diagnose(made))


def bert() -> Examined:
    """Eager training on an H200, where the host limits."""
    return recorded("exams/bert_large")


@cache
def everything_wrong() -> Examined:
    """The GPT of patients/ that has every disease, on an H200."""
    return recorded("patients/h200/all-everything-sick")


def compared() -> Compared:
    mine, theirs = bert(), recorded("exams/bert_large_compiled")
    return Compared(mine, theirs, compare(mine.diagnosis, theirs.diagnosis))


@cache
def predicted() -> Predictions:
    sheets = [sheet for name in ("h100", "b200", "rtx4090") if (sheet := datasheets.meant(name))]
    found = from_exam(bert().exam, sheets, ())
    return replace(
        found,
        what_if=(WhatIf("h100-sxm", "graph", 0.02, 4.5, None), WhatIf("h100-sxm", "batch=2x", 0.1, 1.8, 20 << 30)),
    )


def kept_lab() -> Lab:
    return schema.read(Lab, LAB)


def cured() -> Treated:
    """The GPT with everything wrong."""
    return schema.read(Treated, H200 / "patient_treated.json")


def treated() -> Treated:
    """Made up: 100 ms, halved, then a fifth off."""
    return Treated(
        target="train.py:step",
        machine="NVIDIA H200",
        baseline_s=0.1,
        treated_s=0.04,
        treated_low_s=0.0398,
        treated_high_s=0.0402,
        speedup=2.5,
        speedup_low=2.4,
        speedup_high=2.6,
        predicted_speedup=2.75,
        compulsory_floor_s=0.01,
        fused_floor_s=0.02,
        memory_before_bytes=8 << 30,
        memory_after_bytes=6 << 30,
        spent_s=75.0,
        kept=(
            _kept("compile", 2.2, 2.0, 0.05, Check("same math", 0.0012, passed=True)),
            _kept("whole-step-graph", 1.25, 1.25, 0.04, Check("same math", 0.0, passed=True)),
        ),
        rejected=(Rejected("channels-last", "slower", 1.1, 0.97),),
        not_tried=(NotTried("tf32", 1.3, "changes numbers: --allow tf32"),),
        advice=(Advice("sync points", "B102", 0.004, ("loss.item() at train.py:12",), "read numbers once in a while"),),
        prescription=Prescription("train.py:step", "2026-11-15", "2.13.0", "NVIDIA H200", "0" * 8, (), 2.75, 2.5),
    )


def _kept(name: str, predicted: float, measured: float, step_s: float, check: Check) -> Kept:
    low, high = 0.95 * measured, 1.05 * measured
    return Kept(
        name, name, ("model",), predicted, measured, low, high, step_s, check, 30.0, 600.0, 6 << 30, f"{name}()"
    )


def hostile(text: str) -> Examined:
    """Every string in it that a page may show, but no dots: they would be modules within modules."""
    name = text.replace(".", "")
    ops = tuple(
        replace(op, name=f"aten::{name}", module=f"Net.{name}", source=f"{name}.py:1") for op in small_program().ops
    )
    return examined(
        exam(
            *(doing(i, op, i, 1.0, name=name) for i, op in enumerate(ops)),
            program=replace(small_program(), ops=ops),
            target=name,
            ceilings_from=name,
            step_s_method=name,
            idle={name: 0.5, "sync": 0.5},
            syncs=(Sync(name, 1.0, name),),
            quality=Quality(0.5, steady=True, growing=False, warnings=(name,), steps_found_by="whole"),
        )
    )


@cache
def odd() -> dict[str, Examined]:
    """Exams that lack something."""
    program = small_program()
    return {
        "no ops": examined(exam(step_s=1.0)),
        "one op": examined(exam(doing(0, program.ops[0], 0.0, 1.0), program=program)),
        "no program": examined(exam(kernel(0.0, 1.0), kernel(2.0, 1.0))),
        "no time": examined(exam(kernel(0.0, 0.0), step_s=1e-15)),
        "all there is": examined(full_exam(program)),
    }
