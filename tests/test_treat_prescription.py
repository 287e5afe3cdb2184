"""Prescriptions: applied to the model that they are for, refused for any other, and undone to the bit."""

import subprocess
import sys
from copy import deepcopy
from dataclasses import replace
from functools import partial, partialmethod, wraps
from pathlib import Path

import pytest
import torch

import gobrrr
from gobrrr import schema
from gobrrr.errors import BadInput, UsageError
from gobrrr.integrations.applying import applying
from gobrrr.machine import identify
from gobrrr.treat.code import differ, digest_of
from gobrrr.treat.outcome import PrescribedDose, Prescription
from gobrrr.treat.prescription import fingerprint_of
from gobrrr.treat.subject import subject_of
from running import SCRIPTS
from treating import classifying, training

FUSED = PrescribedDose("fused-optimizer", ("0",))


def prescription(model, *doses: PrescribedDose, trains: bool | None = None) -> Prescription:
    return Prescription(
        target="made.py:up",
        made_at="2026-11-15T00:00:00+00:00",
        torch=torch.__version__,
        device=identify("cpu").name,
        model=fingerprint_of({"model": model}),
        doses=doses,
        predicted=1.5,
        measured=1.4,
        trains=trains,
    )


def losses(made, steps=3):
    return [float(made.step()) for _ in range(steps)]


def test_applied_from_a_file_it_is_in_force_until_undone(tmp_path):
    made = training()
    schema.write(prescription(made.model, FUSED), tmp_path / "rx.json")
    applied = gobrrr.apply(tmp_path / "rx.json", made.model, made.optimizer)
    assert made.optimizer.param_groups[0]["fused"] is True
    treated = losses(made)
    applied.undo()
    assert made.optimizer.param_groups[0]["fused"] is None
    assert treated == pytest.approx(losses(training()), rel=1e-5)


def test_a_model_goes_on_after_undo_from_where_it_was():
    made, plain = training(), training()
    applied = gobrrr.apply(prescription(made.model, FUSED), made.model, made.optimizer)
    losses(made)
    applied.undo()
    assert losses(made) == pytest.approx(losses(plain, 6)[3:], rel=1e-4)


@pytest.mark.parametrize("change", [{"model": "other"}, {"torch": "1.0"}, {"device": "abacus"}])
def test_another_model_torch_or_device_is_refused(change):
    made = training()
    with pytest.raises(BadInput, match=f"another {next(iter(change))}"):
        gobrrr.apply(replace(prescription(made.model), **change), made.model)


class Plain(torch.nn.Module):
    """One that is treated."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = torch.nn.Conv2d(4, 4, 3, padding=1), torch.nn.BatchNorm2d(4)

    def forward(self, x):
        return self._normed(x).relu()

    def _normed(self, x):
        """Told in its own words."""
        return self.norm(self.conv(x))


class Residual(Plain):
    def _normed(self, x):
        return self.norm(self.conv(x) + x)


class Reworded(Plain):
    def _normed(self, x):
        # with other words
        return self.norm(self.conv(x))


def test_a_model_that_computes_otherwise_by_now_is_another_however_alike_its_parameters():
    folded = PrescribedDose("conv-bn-fold", ("model:conv", "model:norm"))
    rx = replace(prescription(Plain(), folded), code=digest_of([Plain()]))
    with pytest.raises(BadInput, match=r"forward.* was another"):
        gobrrr.apply(rx, Residual().eval())
    gobrrr.apply(rx, Reworded().eval()).undo()


def test_a_loss_that_the_step_holds_is_no_part_of_the_models_code():
    model, loss = Plain(), torch.nn.CrossEntropyLoss()
    found = subject_of(lambda: lambda: loss(model(torch.randn(2, 4, 8, 8)), torch.randn(2, 4, 8, 8)))
    assert len(found.models) == 2
    assert digest_of(found.models.values()) == digest_of([model])


class Partial(Plain):
    forward = partialmethod(Plain.forward)


class Each(Plain):
    def forward(self, x):
        return sum(self._normed(one[None]) for one in x)


class EachResidual(Each):
    _normed = Residual._normed


class Wrapped(Plain):
    @wraps(partial(print))
    def forward(self, x):
        return x


def test_what_a_forward_calls_in_the_end_or_within_another_function_is_its_code():
    assert digest_of([Partial()]) == digest_of([Plain()])
    assert differ(digest_of([Each()]), digest_of([EachResidual()]))
    assert differ(digest_of([Each()]), digest_of([Plain()]))
    assert digest_of([Wrapped()]) is None, "a partial, which has no code of its own"


def test_what_was_traced_is_the_same_when_it_is_copied():
    traced = torch.fx.symbolic_trace(Plain())
    assert digest_of([deepcopy(traced)]) == digest_of([traced])
    assert differ(digest_of([torch.fx.symbolic_trace(Residual())]), digest_of([traced]))


def test_code_that_another_python_has_read_is_not_compared():
    assert not differ("3.11 one", "3.12 other")
    assert not differ(None, "3.11 one")
    assert differ("3.11 one", "3.11 other")


def test_code_that_cannot_be_read_is_no_other_code():
    names = {"nn": torch.nn}
    exec("class Shell(nn.Linear):\n    def forward(self, x):\n        return x", names)  # noqa: S102 (as a shell does)
    model = names["Shell"](2, 2)
    assert digest_of([model]) is None
    gobrrr.apply(replace(prescription(model), code="known"), model).undo()


@pytest.mark.parametrize("sites", [(), ("abc",), ("-1",)])
def test_a_damaged_site_is_told_and_a_script_runs_on(sites):
    made = training()
    rx = prescription(made.model, PrescribedDose("fused-optimizer", sites))
    with pytest.raises(BadInput, match="damaged"):
        gobrrr.apply(rx, made.model, made.optimizer)
    said = []
    with applying(rx, said.append):
        made.step()
    assert "runs on untreated" in said[0]


WITH_LOSS = PrescribedDose("compile-regions", ("model:0", "model:1", "model1:", "cross_entropy"))


def test_a_loss_of_the_step_need_not_be_shown():
    made, loss = classifying(), torch.nn.CrossEntropyLoss()
    rx = replace(prescription(made.model, WITH_LOSS), models=1)
    applied = gobrrr.apply(rx, made.model)
    assert applied.plan[0].sites == ("model:0", "model:1", "cross_entropy")
    applied.undo()
    applied = gobrrr.apply(rx, [loss, made.model])
    assert applied.plan[0].sites == WITH_LOSS.sites
    applied.undo()


def test_a_model_that_is_not_shown_is_missed():
    made = classifying()
    rx = replace(prescription(made.model, WITH_LOSS), models=2)
    with pytest.raises(BadInput, match="model1"):
        gobrrr.apply(rx, made.model)


def test_another_model_is_told_as_that_whether_its_loss_is_shown_or_not():
    rx = replace(prescription(classifying().model, WITH_LOSS), models=1)
    other = torch.nn.Linear(2, 2)
    for shown in (other, [other, torch.nn.CrossEntropyLoss()]):
        with pytest.raises(BadInput, match="for another model"):
            gobrrr.apply(rx, shown)


@pytest.mark.parametrize("what", [3, {"model": "x"}])
def test_what_is_no_prescription_is_told_so(what):
    with pytest.raises(UsageError, match="a prescription is a file"):
        gobrrr.apply(what, training().model)


@pytest.mark.parametrize("given", [(), (torch.optim.LBFGS,)], ids=["none", "LBFGS"])
def test_an_optimizer_that_cannot_be_fused_is_refused_and_left_alone(given):
    made = training()
    optimizers = [kind(made.model.parameters()) for kind in given]
    with pytest.raises(BadInput, match=r"model, optimizer\)|LBFGS has no fused form"):
        gobrrr.apply(prescription(made.model, FUSED), made.model, *optimizers)
    assert not any("fused" in group for one in optimizers for group in one.param_groups)


def test_what_fails_when_it_is_applied_is_told_in_a_sentence_and_undone():
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()
    dose = PrescribedDose("conv-bn-fold", ("model:0+model:1",))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(BadInput, match="cannot be applied to this model: "):
        gobrrr.apply(prescription(model, dose), model)
    assert all(value.equal(before[name]) for name, value in model.state_dict().items())


def test_a_treatment_that_nobody_knows_is_refused():
    made = training()
    with pytest.raises(BadInput, match="upgrade"):
        gobrrr.apply(prescription(made.model, PrescribedDose("magic", ())), made.model)


def test_a_script_runs_with_it_and_computes_the_same(tmp_path):
    nn = torch.nn
    model = nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.GELU(), nn.Dropout(0.5), nn.Linear(32, 4))
    schema.write(prescription(model, FUSED), tmp_path / "rx.json")
    ran = run(tmp_path, "--apply", str(tmp_path / "rx.json"), str(SCRIPTS / "plain.py"), "4")
    assert "applied fused-optimizer" in ran.stderr
    plain = subprocess.run([sys.executable, str(SCRIPTS / "plain.py"), "4"], capture_output=True, text=True, check=True)
    both = ([float.fromhex(line) for line in out.split()] for out in (ran.stdout, plain.stdout))
    assert next(both) == pytest.approx(next(both), rel=1e-4)


HOOKED = """
import torch
from torch.optim.optimizer import register_optimizer_step_pre_hook
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.AdamW(model.parameters())
steps = []
for _ in range(3):
    model(torch.ones(2, 4)).sum().backward()
    if not steps:
        register_optimizer_step_pre_hook(lambda *_: steps.append(1))  # after ours
    optimizer.step()
print(len(steps), optimizer.param_groups[0]["fused"])
"""


def test_a_script_may_have_hooks_of_its_own(tmp_path):
    schema.write(prescription(torch.nn.Linear(4, 4), FUSED), tmp_path / "rx.json")
    (tmp_path / "hooked.py").write_text(HOOKED)
    ran = run(tmp_path, "--apply", str(tmp_path / "rx.json"), "hooked.py")
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == ["3", "True"]


RESUMED = """
import torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3))
x = torch.randn(2, 3, 8, 8)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, fused=True)
for parameter in model.parameters():  # as from a checkpoint
    optimizer.state[parameter] = {
        "step": torch.tensor(9.0), "exp_avg": torch.randn_like(parameter), "exp_avg_sq": torch.rand_like(parameter)
    }
for _ in range(4):
    optimizer.zero_grad()
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    print(loss.item())
"""


def test_what_an_optimizer_keeps_follows_the_weights_of_a_script_that_resumes(tmp_path):
    nn = torch.nn
    model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3))
    last = PrescribedDose("channels-last", ("model:0", "model:2"))
    schema.write(prescription(model, last, trains=True), tmp_path / "rx.json")
    (tmp_path / "resumed.py").write_text(RESUMED)
    ran = run(tmp_path, "--apply", str(tmp_path / "rx.json"), "resumed.py")
    assert "applied channels-last" in ran.stderr
    plain = subprocess.run([sys.executable, str(tmp_path / "resumed.py")], capture_output=True, text=True, check=True)
    treated, expected = ([float(line) for line in out.split()] for out in (ran.stdout, plain.stdout))
    assert treated == pytest.approx(expected, rel=1e-4)


def test_a_script_without_that_model_is_told_so(tmp_path):
    schema.write(prescription(torch.nn.Linear(1, 1), FUSED), tmp_path / "rx.json")
    ran = run(tmp_path, "--apply", str(tmp_path / "rx.json"), str(SCRIPTS / "plain.py"), "2")
    assert ran.returncode == 0
    assert "never called the model" in ran.stderr


def run(folder, *args: str) -> subprocess.CompletedProcess:
    """As `gobrrr run ARGS…`."""
    home = str(Path(gobrrr.__file__).parents[1])
    code = f"import sys; sys.path.insert(0, {home!r}); from gobrrr.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, "run", *args], cwd=folder, capture_output=True, text=True, check=False
    )
