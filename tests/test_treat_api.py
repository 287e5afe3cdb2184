"""`gobrrr.treat` from Python: what is there is treated, and stays as it was or as treated."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch

import gobrrr
from gobrrr.treat import api
from gobrrr.treat.outcome import PrescribedDose, Treated
from reported import treated
from test_examination import probed
from test_treat_cli import cheap
from test_treat_treatments import bits, flags
from treating import subject, training

__all__ = ["cheap", "probed"]

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo

DOSES = PrescribedDose("fused-optimizer", ("0",)), PrescribedDose("compile", ("model:",))


def outcome(*_args, **_options) -> Treated:
    """As if these had helped."""
    found = treated()
    return replace(found, prescription=replace(found.prescription, doses=DOSES))


def losses(step, steps: int = 3) -> list[float]:
    return [float(step()) for _ in range(steps)]


@pytest.mark.usefixtures("probed", "cheap")
def test_it_treats_what_is_given_and_leaves_it_as_it_was():
    made = training()
    found = subject(made)
    before = bits(found), flags(found)
    result = gobrrr.treat(made, budget_s=0)
    assert isinstance(result, Treated)
    assert (bits(found), flags(found)) == before


def test_what_helped_stays_in_force_until_undone(monkeypatch):
    monkeypatch.setattr(api, "treat_factory", outcome)
    made = training()
    stays = gobrrr.treat(made, keep=True)
    assert made.optimizer.param_groups[0]["fused"] is True
    assert [dose.treatment.name for dose in stays.subject.plan] == ["fused-optimizer", "compile"]
    assert losses(stays.step) == pytest.approx(losses(training().step), rel=1e-5)
    stays.undo()
    assert made.optimizer.param_groups[0]["fused"] is None
    assert losses(made.step) == pytest.approx(losses(training().step, 6)[3:], rel=1e-4)


def test_the_package_is_still_a_package_however_it_is_reached():
    code = "import gobrrr; a = gobrrr.treat; import gobrrr.treat.treating; print(a is gobrrr.treat, callable(a))"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.split() == ["True", "True"]
    assert callable(gobrrr.treat)
    assert gobrrr.treat.__name__ == "gobrrr.treat"


def test_a_step_alone_can_be_treated(monkeypatch):
    monkeypatch.setattr(api, "treat_factory", lambda *_a, **_o: treated())
    x = torch.randn(3)
    assert torch.equal(gobrrr.treat(lambda: x * 2, keep=True).step(), x * 2)
