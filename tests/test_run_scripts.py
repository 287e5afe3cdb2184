"""Six real scripts, unmodified: the steps are found, and what they compute is bit for bit what it is without us."""

import importlib.util

import pytest

from gobrrr import schema
from gobrrr.exam import Exam
from running import SCRIPTS, attended, plainly

STEPS = 40


def missing(*modules: str) -> pytest.MarkDecorator:
    absent = [module for module in modules if importlib.util.find_spec(module) is None]
    return pytest.mark.skipif(bool(absent), reason=f"{' and '.join(absent)} not installed")


@pytest.mark.parametrize(
    ("name", "step_period", "phases"),
    [
        ("plain", 1, {"forward", "backward", "optimizer", "other"}),
        ("accumulation", 4, {"forward", "backward", "optimizer", "other"}),
        ("gan", 2, {"forward", "backward", "optimizer", "other"}),
        ("inference", 1, {"forward"}),
        pytest.param(
            "trainer",
            2,
            {"forward", "backward", "optimizer", "other"},
            marks=missing("transformers", "accelerate"),
        ),
        pytest.param("lightning_fit", 1, {"forward", "backward", "optimizer"}, marks=missing("lightning")),
    ],
)
def test_steps_are_found_and_losses_are_bit_identical(tmp_path, name, step_period, phases):
    script = str(SCRIPTS / f"{name}.py")
    ran, plain = attended(tmp_path, "-o", "exam.json", script, str(STEPS)), plainly(tmp_path, script, str(STEPS))
    assert (ran.code, ran.out) == (plain.code, plain.out) == (0, plain.out)
    assert plain.out
    assert ran.diagnosis["step_period"] == step_period
    assert ran.diagnosis["steps"] == 3
    assert ran.diagnosis["target"] == f"{script} {STEPS}"
    assert "next: gobrrr show exam.json" in ran.said
    program = schema.read(Exam, tmp_path / "exam.json").program
    assert {op.phase.value for op in program.ops if op.launches} <= phases
    assert {"forward", *phases} - {"other"} <= {op.phase.value for op in program.ops}
