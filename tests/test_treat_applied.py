"""Treated models in the hands of programs: copied, saved, trained on, loaded into; and found among others."""

import copy
import gc
import inspect
import io
import json
import subprocess
import sys
import textwrap
import warnings
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import gobrrr
import gobrrr.treat.treatments  # registers them
import reported
from gobrrr import schema
from gobrrr.errors import BadInput
from gobrrr.treat.compiling import MOST_SETTINGS, eager_attention
from gobrrr.treat.outcome import PrescribedDose
from gobrrr.treat.prescription import fingerprint_of
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from test_treat_prescription import FUSED, prescription
from treating import Block, Signs, attention, convolving, images, inference, training

COMPILED = PrescribedDose("compiled-optimizer", ("0",))
FOLDED = PrescribedDose("conv-bn-fold", ("model:0", "model:1"))
BF16 = PrescribedDose("bf16-autocast", ("model:",))
INT8 = PrescribedDose("int8-dynamic", ("model:0.up", "model:1"))
MERGED = PrescribedDose("merged-projections", ("model:0.query+model:0.key+model:0.value",))


LAST = PrescribedDose("channels-last", ("model:0", "model:2"))


def last(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous(memory_format=torch.channels_last)


def trained_images(**options) -> SimpleNamespace:
    """Two convolutions that have been trained for a while."""
    step, optimizer = convolving(**options)
    (model,) = subject_of(lambda: step).models.values()
    for _ in range(3):
        step()
    return SimpleNamespace(model=model, optimizer=optimizer, step=step)


def halved(model: nn.Module) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(0.5)


# **** copies ****


@pytest.mark.parametrize(
    ("name", "made", "sites"),
    [
        ("bf16-autocast", images, ("model:",)),
        ("padded-products", inference, ("model:1",)),
        ("sdpa-backend", attention, ("math",)),
        ("channels-last", images, ("model:0", "model:3")),
    ],
)
def test_a_copy_of_a_treated_model_computes_with_its_own_weights(name, made, sites):
    workload = made()
    subject = subject_of(lambda: workload)
    subject.become((Dose(TREATMENTS[name], sites),))
    x = workload.inputs
    with torch.no_grad():
        before = workload.model(x)
        copied = copy.deepcopy(workload.model)
        halved(workload.model)
        assert torch.equal(copied(x), before)
        assert not torch.equal(workload.model(x), before)
        subject.end()
        assert "forward" not in vars(workload.model)
        halved(copied)
        assert not torch.equal(copied(x), before)


@pytest.mark.parametrize("dose", [BF16, FOLDED], ids=["bf16", "folded"])
def test_a_treated_model_can_be_saved_as_a_whole(dose, tmp_path):
    made = images()
    gobrrr.apply(prescription(made.model, dose), made.model)
    torch.save(made.model, tmp_path / "model.pt")
    loaded = torch.load(tmp_path / "model.pt", weights_only=False)
    with torch.no_grad():
        assert torch.equal(loaded(made.inputs), made.model(made.inputs))


# **** inference ****


def called_in_mode(model: nn.Module, x: torch.Tensor) -> None:
    """As Lightning does after validation: nobody is told."""
    for module in model.modules():
        module.training = True
    with torch.no_grad():
        model(x)


@pytest.mark.parametrize(("made", "dose"), [(images, FOLDED), (inference, INT8), (attention, MERGED)])
def test_names_and_parameters_of_a_model_treated_for_inference_stay(made, dose):
    workload = made()
    names, own = list(workload.model.state_dict()), {id(one) for one in workload.model.parameters()}
    gobrrr.apply(prescription(workload.model, dose), workload.model)
    assert list(workload.model.state_dict()) == names
    assert {id(one) for one in workload.model.parameters()} == own


@pytest.mark.parametrize(("made", "dose"), [(images, FOLDED), (inference, INT8), (attention, MERGED)])
@pytest.mark.parametrize("how", ["whole", "part", "mode", "load", "assign"])
def test_what_is_for_inference_ends_where_the_model_is_trained_or_loads_other_weights(made, dose, how):
    workload, plain = made(), made()
    model = workload.model
    optimizer = torch.optim.SGD(plain.model.parameters(), lr=0.1)
    gobrrr.apply(prescription(model, dose), model)
    own = torch.optim.SGD(model.parameters(), lr=0.1)  # made while it was treated
    other = {name: value / 2 for name, value in plain.model.state_dict().items()}
    change = {
        "whole": model.train,
        "part": model[0].train,
        "mode": partial(called_in_mode, model, workload.inputs),
        "load": partial(model.load_state_dict, other),
        "assign": partial(model.load_state_dict, other, assign=True),
    }[how]
    with pytest.warns(UserWarning, match="is trained|given other weights"):
        change()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        model.train()
    if how == "mode":
        called_in_mode(plain.model, plain.inputs)  # statistics have moved
    if how in ("load", "assign"):
        plain.model.load_state_dict(other)
    plain.model.train()
    for one, steps in ((model, own), (plain.model, optimizer)):
        one(workload.inputs).square().mean().backward()
        if how != "assign":
            steps.step()
    for (name, one), other in zip(model.named_parameters(), plain.model.parameters(), strict=True):
        assert torch.equal(one, other), name
        assert torch.equal(one.grad, other.grad), name


def test_what_changes_nothing_ends_nothing():
    made = images()
    gobrrr.apply(prescription(made.model, FOLDED), made.model)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made.model.eval()
        made.model.train(mode=False)
        made.model.to("cpu", torch.float32)
    assert "forward" in vars(made.model[0])


@pytest.mark.parametrize(("made", "dose"), [(images, FOLDED), (inference, INT8), (attention, MERGED)])
def test_a_model_that_is_cast_computes_in_its_new_type(made, dose):
    workload, plain = made(), made()
    gobrrr.apply(prescription(workload.model, dose), workload.model)
    with pytest.warns(UserWarning, match="is cast or moved"):
        workload.model.double()
    with torch.no_grad():
        assert torch.equal(workload.model(workload.inputs.double()), plain.model.double()(plain.inputs.double()))


def test_applied_twice_it_ends_twice():
    made = inference()
    rx = prescription(made.model, PrescribedDose("int8-dynamic", ("model:1",)))
    for _ in range(2):
        gobrrr.apply(rx, made.model)
    with pytest.warns(UserWarning, match="is undone"):
        made.model.train()
    assert not vars(made.model[1]).keys() & {"forward", "train", "_apply"}


def test_a_module_that_does_not_let_itself_be_trained_stays_so():
    made = images()
    made.model[1].train = lambda mode=True: made.model[1]
    gobrrr.apply(prescription(made.model, FOLDED), made.model)
    with pytest.warns(UserWarning, match="is undone"):
        made.model.train()
    assert made.model[0].training
    assert not made.model[1].training


def test_a_step_that_is_given_again_is_guarded_too():
    made = images()
    applied = gobrrr.apply(prescription(made.model, FOLDED), made.model)
    applied.undo()
    applied.step(made.step)
    assert "forward" in vars(made.model[0])
    with pytest.warns(UserWarning, match="is undone"):
        made.model.train()
    assert "forward" not in vars(made.model[0])
    with pytest.raises(BadInput, match="this model trains"):
        applied.step(made.step)


def test_compiled_it_ends_as_well():
    torch.compiler.reset()
    made, plain = images(), images()
    rx = prescription(made.model, FOLDED, PrescribedDose("compile", ("model:",)))
    gobrrr.apply(rx, made.model)
    with torch.no_grad():
        torch.testing.assert_close(made.model(made.inputs), plain.model(plain.inputs))
    with pytest.warns(UserWarning, match="is undone"):
        called_in_mode(made.model, made.inputs)
    called_in_mode(plain.model, plain.inputs)
    assert "forward" not in vars(made.model[0])
    torch.testing.assert_close(made.model.state_dict(), plain.model.state_dict())
    torch.compiler.reset()


def test_arguments_keep_their_names():
    made = images()
    applied = gobrrr.apply(prescription(made.model, FOLDED, BF16), made.model)
    assert list(inspect.signature(made.model.forward).parameters) == ["input"]
    with torch.no_grad():
        assert torch.equal(made.model[0](input=made.inputs), made.model[0](made.inputs))
    applied.undo()


def test_a_copy_of_a_model_treated_for_inference_is_not_trained_by_mistake():
    made = images()
    gobrrr.apply(prescription(made.model, FOLDED), made.model)
    copied = copy.deepcopy(made.model)
    with torch.no_grad():
        assert torch.equal(copied(made.inputs), made.model(made.inputs))
    for change in (copied.train, lambda: copied.load_state_dict(made.model.state_dict())):
        with pytest.raises(BadInput, match="copy it before"):
            change()
    assert "forward" in vars(made.model[0])


@pytest.mark.parametrize("by", ["mode", "optimizer"])
def test_for_a_model_that_trains_nothing_is_applied_that_is_for_inference(by):
    made = images()
    rx, optimizer = prescription(made.model, FOLDED), torch.optim.SGD(made.model.parameters())
    made.model.train(by == "mode")
    with pytest.raises(BadInput, match="conv-bn-fold is for inference"):
        gobrrr.apply(rx, made.model, *([optimizer] if by == "optimizer" else []))
    assert "forward" not in vars(made.model[0])


def test_hooks_of_a_folded_convolution_are_called_once():
    made, called = images(), []
    made.model[0].register_forward_pre_hook(lambda *_: called.append(1))
    made.model[1].register_forward_hook(lambda *_: called.append(1))
    gobrrr.apply(prescription(made.model, FOLDED), made.model)
    made.step()
    assert called == [1, 1]


def test_folded_and_with_channels_last_what_computes_has_them_last():
    made = images()
    with torch.no_grad():
        before = made.model(made.inputs)
    rx = prescription(made.model, FOLDED, PrescribedDose("channels-last", ("model:0", "model:3")))
    applied = gobrrr.apply(rx, made.model)
    at_work = vars(made.model[0])["forward"].module
    assert at_work.weight.is_contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        torch.testing.assert_close(made.model(made.inputs), before)
        applied.undo()
        assert torch.equal(made.model(made.inputs), before)


# **** applied again ****


def test_applied_again_it_is_in_force_once_and_undone_by_whoever_applied_it_last():
    made = images()
    with torch.no_grad():
        before = made.model(made.inputs)
    rx = prescription(made.model, FOLDED)
    first = gobrrr.apply(rx, made.model)
    second = gobrrr.apply(rx, made.model)
    first.undo()
    assert "forward" in vars(made.model[0])
    second.undo()
    assert "forward" not in vars(made.model[0])
    with torch.no_grad():
        assert torch.equal(made.model(made.inputs), before)


def test_what_nobody_can_undo_any_more_is_not_treated_again():
    made = images()
    rx = prescription(made.model, PrescribedDose("channels-last", ("model:0", "model:3")))
    gobrrr.apply(rx, made.model)
    gc.collect()
    with pytest.raises(BadInput, match=r"what gobrrr\.apply has returned is gone"):
        gobrrr.apply(rx, made.model)


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_who_draws_from_an_iterator_is_told_that_a_batch_is_gone():
    made = training()
    batches = iter([made.inputs] * 10)
    rx = prescription(made.model, PrescribedDose("compile", ("step",)))

    def step():
        with torch.no_grad():
            return made.model(next(batches))

    with pytest.warns(UserWarning, match="some steps were run to compile them: .*cannot be put back"):
        gobrrr.apply(rx, made.model, made.optimizer).step(step)


# **** steps ****


def test_a_step_that_wants_arguments_is_told_how_to_be_called():
    made = training()
    applied = gobrrr.apply(prescription(made.model, FUSED), made.model, made.optimizer)
    with pytest.raises(BadInput, match=r"without arguments .* rx\.step\(lambda: step\(\*batch\)\)"):
        applied.step(lambda x, y: x + y)


def test_where_a_step_fails_what_was_in_force_before_is_again():
    made = training()
    rx = prescription(made.model, FUSED, PrescribedDose("compile", ("step",)))
    applied = gobrrr.apply(rx, made.model, made.optimizer)

    def fails():
        raise KeyError("no batch yet")

    with pytest.raises(KeyError):
        applied.step(fails)
    assert made.optimizer.param_groups[0]["fused"] is True
    applied.step(made.step)()
    applied.undo()
    assert made.optimizer.param_groups[0]["fused"] is None


# **** optimizers ****


def test_weights_that_lie_elsewhere_are_followed_by_their_optimizer_or_it_is_asked_for():
    made = images()
    last = PrescribedDose("channels-last", ("model:0", "model:3"))
    with pytest.raises(BadInput, match=r"gobrrr\.apply\(\.\.\., model, optimizer\)"):
        gobrrr.apply(prescription(made.model, last, trains=True), made.model)
    gobrrr.apply(prescription(made.model, last, trains=False), made.model).undo()


def test_an_optimizer_of_another_model_is_refused():
    made, other = training(), nn.Linear(2, 2)
    with pytest.raises(BadInput, match="this SGD holds no parameter of the model"):
        gobrrr.apply(prescription(made.model, FUSED), made.model, torch.optim.SGD(other.parameters(), 0.1))


def test_a_step_of_several_models_wants_all_of_them():
    made = training()
    rx = replace(prescription(made.model, FUSED), model="another", models=2)
    with pytest.raises(BadInput, match="models given: 1, the prescription is for a step of 2"):
        gobrrr.apply(rx, made.model, made.optimizer)


def test_a_model_is_found_behind_its_compiler():
    made = training()
    gobrrr.apply(prescription(made.model, FUSED), torch.compile(made.model), made.optimizer)
    assert made.optimizer.param_groups[0]["fused"] is True


@pytest.mark.parametrize("kept", ["found", "file"])
def test_all_that_was_found_holds_a_prescription(kept, tmp_path):
    made = training()
    found = replace(reported.treated(), prescription=prescription(made.model, FUSED))
    schema.write(found, tmp_path / "found.json")
    gobrrr.apply(found if kept == "found" else tmp_path / "found.json", made.model, made.optimizer)
    assert made.optimizer.param_groups[0]["fused"] is True


def test_a_fused_optimizer_stays_so_when_it_loads_and_is_not_when_that_is_undone():
    made, plain = training(), training()
    for one in (made, plain):
        one.step()
    saved = copy.deepcopy(plain.optimizer.state_dict())
    applied = gobrrr.apply(prescription(made.model, FUSED), made.model, made.optimizer)
    made.optimizer.load_state_dict(saved)
    assert all(group["fused"] is True and group["foreach"] is False for group in made.optimizer.param_groups)
    assert [float(made.step()) for _ in range(3)] == pytest.approx([float(plain.step()) for _ in range(3)], rel=1e-4)
    applied.undo()
    made.optimizer.load_state_dict(saved)
    assert all(not group["fused"] and not group["foreach"] for group in made.optimizer.param_groups)


def saved_by(optimizer: torch.optim.Optimizer) -> dict:
    """As a file gives it back: to others."""
    file = io.BytesIO()
    torch.save(optimizer.state_dict(), file)
    file.seek(0)
    return torch.load(file)


def layouts(saved: dict) -> list[tuple[int, ...]]:
    return [one.stride() for state in saved["state"].values() for one in state.values()]


@pytest.mark.parametrize("fused", [None, True])
@pytest.mark.parametrize("doses", [(LAST,), (LAST, FUSED)], ids=["layout", "and fused"])
def test_what_is_saved_with_channels_last_is_laid_as_untreated_weights_are(doses, fused):
    """Loaded, moments keep their layout, and a fused kernel goes through memory as it comes."""
    made, plain, resumed = (trained_images(fused=fused) for _ in range(3))
    applied = gobrrr.apply(prescription(made.model, *doses, trains=True), made.model, made.optimizer)
    for one in (made, plain, resumed):
        one.step()
    live = layouts(made.optimizer.state_dict() | {"state": made.optimizer.state})
    saved, expected = saved_by(made.optimizer), saved_by(plain.optimizer)
    assert saved["param_groups"] == expected["param_groups"]
    assert layouts(saved) == layouts(expected) != live
    assert layouts({"state": made.optimizer.state}) == live
    resumed.model.load_state_dict(made.model.state_dict())
    resumed.optimizer.load_state_dict(saved)
    ours, theirs = ([float(one.step()) for _ in range(4)] for one in (resumed, plain))
    assert ours == pytest.approx(theirs, rel=1e-4)
    applied.undo()
    assert not made.optimizer._optimizer_state_dict_post_hooks


def test_moments_that_were_loaded_with_channels_last_follow_the_weights_when_that_is_undone():
    """As one saved them by hand, or we did once."""
    made, plain = (trained_images(fused=True) for _ in range(2))
    saved = saved_by(plain.optimizer)
    for state in saved["state"].values():
        state.update({key: last(one) for key, one in state.items() if one.ndim == 4})
    made.optimizer.load_state_dict(saved)
    applied = gobrrr.apply(prescription(made.model, LAST, trains=True), made.model, made.optimizer)
    treated = [float(made.step()) for _ in range(2)]
    applied.undo()
    assert layouts(made.optimizer.state_dict()) == layouts(plain.optimizer.state_dict())
    ours, theirs = treated + [float(made.step()) for _ in range(3)], [float(plain.step()) for _ in range(5)]
    assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.NAdam, Signs])
def test_what_a_compiled_optimizer_saves_and_its_schedule_logs_is_what_it_would_be_untreated(kind):
    def trained():
        made = training(optimizer=kind)
        return made, torch.optim.lr_scheduler.CosineAnnealingLR(made.optimizer, 10)

    (made, schedule), (plain, other) = trained(), trained()
    applied = gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    for one, rates in ((made, schedule), (plain, other)):
        for _ in range(5):
            one.step()
            rates.step()
    assert json.dumps(schedule.get_last_lr()) == json.dumps(other.get_last_lr())
    assert saved_by(made.optimizer)["param_groups"] == saved_by(plain.optimizer)["param_groups"]
    applied.undo()
    assert made.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"]


def test_an_optimizer_that_changes_its_own_rate_does_so_compiled():
    class Tiring(Signs):
        @torch.no_grad()
        def step(self, closure=None) -> None:
            super().step(closure)
            for group in self.param_groups:
                group["lr"] *= 0.5

    made = training(optimizer=Tiring)
    gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    for _ in range(3):
        made.step()
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(1e-2 / 8)


def test_what_is_fused_for_parameters_that_come_later_is_not_saved():
    made, late = training(), nn.Linear(4, 4)
    gobrrr.apply(prescription(made.model, FUSED), made.model, made.optimizer)
    made.optimizer.add_param_group({"params": list(late.parameters())})
    assert not any(group["fused"] for group in saved_by(made.optimizer)["param_groups"])


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adagrad])
def test_an_optimizer_of_sparse_gradients_is_not_fused(kind):
    model = nn.Embedding(10, 4, sparse=True)
    with pytest.raises(BadInput, match="no fused form for these parameters"):
        gobrrr.apply(prescription(model, FUSED), model, kind(model.parameters(), 0.1))


def test_parameters_that_come_later_are_fused_too_unless_it_is_undone():
    made = training()
    late, later = (nn.Linear(4, 4) for _ in range(2))
    applied = gobrrr.apply(prescription(made.model, FUSED), made.model, made.optimizer)
    made.optimizer.add_param_group({"params": list(late.parameters())})
    assert all(group["fused"] for group in made.optimizer.param_groups)
    applied.undo()
    made.optimizer.add_param_group({"params": list(later.parameters())})
    assert not any(group["fused"] for group in made.optimizer.param_groups)


def test_two_optimizers_of_a_model_are_given_as_a_list():
    model = nn.Sequential(Block(), nn.Linear(16, 4))
    two = [torch.optim.AdamW(part.parameters()) for part in model]
    rx = prescription(model, PrescribedDose("fused-optimizer", ("0", "1")))
    with pytest.raises(BadInput, match=r"optimizers given: 1, it is for 2: .*\[optimizer, \.\.\.\]"):
        gobrrr.apply(rx, model, two[0])
    gobrrr.apply(rx, model, two)
    assert all(one.param_groups[0]["fused"] for one in two)


@pytest.mark.parametrize("kind", [torch.optim.RMSprop, torch.optim.NAdam, Signs])
def test_a_compiled_optimizer_follows_rates_loads_and_its_undoing(kind):
    """As a script sets them, in numbers."""
    made, plain = training(optimizer=kind), training(optimizer=kind)
    rates = iter([1e-2, 1e-2, 5e-3, 2e-3, 1e-3, 3e-3, 7e-4, 2e-4, 5e-4])

    def losses() -> list[float]:
        rate = next(rates)
        for one in (made, plain):
            one.optimizer.param_groups[0]["lr"] = rate
        return [float(one.step()) for one in (made, plain)]

    def agree(steps: int) -> None:
        for _ in range(steps):
            ours, theirs = losses()
            assert ours == pytest.approx(theirs, rel=1e-4)

    applied = gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    agree(5)
    made.optimizer.load_state_dict(copy.deepcopy(plain.optimizer.state_dict()))
    agree(2)
    applied.undo()
    assert "step" not in vars(made.optimizer)
    assert made.optimizer.param_groups[0]["lr"] == plain.optimizer.param_groups[0]["lr"]
    agree(2)


@pytest.mark.parametrize("kind", [torch.optim.NAdam, Signs])
def test_a_compiled_optimizer_follows_its_other_settings_there_and_back(kind):
    """Dynamo by itself takes them for variables from the second on, and leaves them what they were."""
    key, values = ("keeps", [0.9, 0.5, 0.9, 0.9]) if kind is Signs else ("betas", [(0.9, 0.999), (0.5, 0.9)] * 2)
    for _ in range(2):  # also in the same process again
        made, plain = training(optimizer=kind), training(optimizer=kind)
        applied = gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
        for value in values:
            for one in (made, plain):
                one.optimizer.param_groups[0][key] = value
            for _ in range(2):
                assert float(made.step()) == pytest.approx(float(plain.step()), rel=1e-4)
        applied.undo()


def test_an_optimizer_whose_settings_never_rest_is_not_compiled_for_ever():
    torch.compiler.reset()
    made, plain = (training(optimizer=torch.optim.RMSprop, momentum=0.5) for _ in range(2))
    gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    counters["stats"].clear()
    for number in range(2 * MOST_SETTINGS):
        for one in (made, plain):
            one.optimizer.param_groups[0]["momentum"] = 0.1 * (number + 1)
        assert float(made.step()) == pytest.approx(float(plain.step()), rel=1e-4)
    assert counters["stats"]["unique_graphs"] <= MOST_SETTINGS + 1


@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.SGD, torch.optim.NAdam])
def test_a_compiled_step_that_sets_its_rate_changes_no_other_setting(kind):
    """Dynamo would have the optimizer captured."""
    torch.compiler.reset()
    made = training(optimizer=kind)
    model, optimizer = made.model, made.optimizer
    rates = {"now": 1e-2}

    def step():
        for group in optimizer.param_groups:
            group["lr"] = rates["now"]
        loss = model(made.inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    settings = copy.deepcopy(optimizer.state_dict()["param_groups"])
    applied = gobrrr.apply(prescription(model, PrescribedDose("compile", ("step",))), model, optimizer)
    treated = applied.step(step)
    for rate in (1e-2, 5e-3):
        rates["now"] = rate
        treated()
    assert optimizer.param_groups[0]["lr"] == 5e-3
    applied.undo()
    step()
    settings[0]["lr"] = 5e-3
    assert optimizer.state_dict()["param_groups"] == settings


def test_a_group_without_parameters_has_nothing_to_be_compiled():
    made = training(optimizer=torch.optim.RMSprop)
    made.optimizer.add_param_group({"params": []})
    gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    made.step()
    assert isinstance(made.optimizer.param_groups[1]["lr"], float)


def test_no_rate_is_compiled_anew():
    torch.compiler.reset()
    made = training(optimizer=torch.optim.RMSprop)
    for _ in range(2):
        made.step()
    gobrrr.apply(prescription(made.model, COMPILED), made.model, made.optimizer)
    counters["stats"].clear()
    made.step()
    assert counters["stats"]["unique_graphs"]
    counters["stats"].clear()
    for place in range(4):
        made.optimizer.param_groups[0]["lr"] = 0.5**place
        made.step()
    assert not counters["stats"]["unique_graphs"]


@pytest.mark.parametrize("treatment", ["compile", "compiled-optimizer"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_rates_can_be_scheduled_where_the_step_is_compiled(when, treatment):
    torch.compiler.reset()
    made = training(optimizer=torch.optim.RMSprop)
    subject = subject_of(lambda: made)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if when == "before":
            schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, 1, 0.5)
        subject.become((Dose(TREATMENTS[treatment], ("step",) if treatment == "compile" else ("0",)),))
        if when == "after":
            schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, 1, 0.5)
        subject.run()
        schedule.step()
    assert not [one for one in said if "lr_scheduler" in str(one.message) or "learning rate" in str(one.message)]
    assert made.optimizer.param_groups[0]["lr"] == pytest.approx(0.5e-2)
    subject.end()
    subject.run()


def test_a_schedule_inside_a_step_is_not_told_that_its_optimizer_is_idle_while_we_look():
    made = training()
    schedule = torch.optim.lr_scheduler.StepLR(made.optimizer, 1, 0.5)

    def step():
        made.step()
        schedule.step()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert eager_attention(subject_of(lambda: step)) == []
    assert "_opt_called" not in vars(made.optimizer)


# **** found among others ****


@pytest.mark.parametrize("first", ["loss", "net"])
def test_a_loss_without_parameters_is_not_the_first_model(first):
    net, loss, x = Block(), nn.MSELoss(), torch.randn(2, 16)
    things = [loss, net] if first == "loss" else [net, loss]
    assert subject_of(lambda: lambda: things and loss(net(x), x)).models == {"model": net, "model1": loss}


@pytest.mark.parametrize("order", [1, -1])
def test_several_models_of_a_step_are_given_in_any_order(order):
    encoder, decoder = nn.Linear(4, 2), nn.Linear(2, 4)
    rx = replace(prescription(encoder, BF16), model=fingerprint_of({"model": encoder, "model1": decoder}))
    gobrrr.apply(rx, [encoder, decoder][::order])
    assert encoder(torch.randn(1, 4)).dtype == torch.bfloat16
    assert decoder(torch.randn(1, 2)).dtype == torch.float32


def ran(folder: Path, rx, code: str) -> subprocess.CompletedProcess:
    """A script under `gobrrr run --apply`."""
    schema.write(rx, folder / "rx.json")
    (folder / "script.py").write_text(textwrap.dedent(code))
    home = str(Path(gobrrr.__file__).parents[1])
    main = f"import sys; sys.path.insert(0, {home!r}); from gobrrr.cli import main; main()"
    command = [sys.executable, "-c", main, "run", "--apply", "rx.json", "script.py"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_script_has_its_loss_compiled_too_and_need_not_show_it(tmp_path):
    torch.manual_seed(0)
    sites = PrescribedDose("compile", ("model:", "model1:", "cross_entropy"))
    found = ran(
        tmp_path,
        replace(prescription(nn.Linear(16, 131072), sites, trains=True), models=1),
        """
        import torch
        from torch._dynamo.utils import counters

        model, criterion = torch.nn.Linear(16, 131072), torch.nn.CrossEntropyLoss()
        x, right = torch.randn(8, 16), torch.randint(131072, (8,))
        with torch.no_grad():
            eager = criterion(model(x), right)
        for _ in range(2):
            loss = criterion(model(x), right)
            loss.backward()
        torch.testing.assert_close(loss.detach(), eager)
        print(counters["stats"]["unique_graphs"], type(loss.grad_fn).__name__)
        """,
    )
    assert found.stdout == "3 GeneratedLossBackward\n", found.stderr
    assert [line for line in found.stderr.splitlines() if "gobrrr" in line] == ["gobrrr: applied compile"]


def test_the_model_that_is_trained_is_treated_and_not_its_teacher(tmp_path):
    found = ran(
        tmp_path,
        prescription(nn.Linear(4, 4), BF16, trains=True),
        """
        import torch
        student, teacher, x = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.randn(2, 4)
        with torch.no_grad():
            teacher(x)
        student(x)
        print(student(x).dtype, teacher(x).dtype)
        """,
    )
    assert found.stdout.split() == ["torch.bfloat16", "torch.float32"], found.stderr
    assert "applied bf16-autocast" in found.stderr


def test_the_optimizer_of_the_model_is_treated_and_not_another(tmp_path):
    found = ran(
        tmp_path,
        prescription(nn.Linear(4, 4), FUSED, trains=True),
        """
        import torch
        net, critic, x = torch.nn.Linear(4, 4), torch.nn.Linear(4, 1), torch.randn(2, 4)
        first, second = (torch.optim.AdamW(one.parameters()) for one in (critic, net))
        for _ in range(2):
            critic(net(x)).sum().backward()
            first.step()
            second.step()
        print(first.param_groups[0]["fused"], second.param_groups[0]["fused"])
        """,
    )
    assert found.stdout.split() == ["None", "True"], found.stderr


def test_a_model_that_the_program_compiles_without_breaks_is_treated_too(tmp_path):
    found = ran(
        tmp_path,
        prescription(nn.Linear(4, 4), BF16),
        """
        import torch
        net = torch.nn.Linear(4, 4)
        compiled = torch.compile(net, fullgraph=True, backend="eager")
        print(compiled(torch.randn(2, 4)).dtype)
        """,
    )
    assert (found.returncode, found.stdout.split()) == (0, ["torch.bfloat16"]), found.stderr


def test_a_script_that_trains_in_evaluation_mode_is_told_and_goes_on_untreated(tmp_path):
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    found = ran(
        tmp_path,
        prescription(model, FOLDED, trains=False),
        """
        import torch
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8)).eval()
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for _ in range(2):
            net(torch.randn(2, 3, 16, 16, requires_grad=True)).square().mean().backward()
            optimizer.step()
        print(net[0].weight.grad is not None)
        """,
    )
    assert found.stdout.split() == ["True"], found.stderr
    assert "an optimizer steps on the model" in found.stderr


def test_a_script_that_validates_before_it_trains_trains_as_ever(tmp_path):
    code = """
        import torch
        torch.manual_seed(0)
        net = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, bias=False), torch.nn.BatchNorm2d(8))
        x = torch.randn(2, 3, 16, 16)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        net.eval()
        with torch.no_grad():
            net(x)
        net.train()
        for _ in range(3):
            optimizer.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            optimizer.step()
        print(loss.item().hex(), len(net.state_dict()))
        """
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8))
    treated = ran(tmp_path, prescription(model, FOLDED, trains=False), code)
    plain = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert treated.stdout == plain.stdout
    assert "applied conv-bn-fold" in treated.stderr
    assert "is undone" in treated.stderr
