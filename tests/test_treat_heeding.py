"""A captured step in the hands of a program, with a recorder in the place of the graph."""

import copy
import warnings

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.capture import Captured
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.treatments import whole_step_graph
from treating import Block, subject, training

GRAPH = Dose(TREATMENTS["whole-step-graph"], ("step",))
FUSED = Dose(TREATMENTS["fused-optimizer"], ("0",))


@pytest.fixture
def replays(monkeypatch) -> list[float]:
    """The rate that each replay would have read where it was captured."""
    read: list[float] = []

    def captured(found: Subject) -> Captured:
        rate = found.optimizers[0].param_groups[0]["lr"]
        return Captured(lambda: read.append(float(rate)), (), ())

    monkeypatch.setattr(whole_step_graph, "captured", captured)
    return read


@pytest.fixture
def found(replays) -> Subject:
    del replays
    one = subject(training())
    one.become((FUSED, GRAPH))
    return one


def test_a_replay_reads_rates_however_they_were_set(found, replays):
    group = found.optimizers[0].param_groups[0]
    found.run()
    group["lr"] = 0.5
    found.run()
    group["lr"].mul_(0.5)
    found.run()
    group["lr"] = torch.tensor(2.0)
    found.run()
    assert replays == pytest.approx([1e-2, 0.5, 0.25, 2.0])


def test_a_rate_that_a_schedule_sets_is_read(found, replays):
    schedule = torch.optim.lr_scheduler.StepLR(found.optimizers[0], 1, 0.5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that no optimizer has stepped before it
        for _ in range(3):
            found.run()
            schedule.step()
    assert replays == pytest.approx([1e-2, 5e-3, 2.5e-3])


def test_a_rate_set_as_a_number_stays_when_the_graph_is_undone(found):
    found.optimizers[0].param_groups[0]["lr"] = 0.125
    found.end()
    assert found.optimizers[0].param_groups[0]["lr"] == 0.125


def decay(optimizer, _model):
    optimizer.param_groups[0]["weight_decay"] = 0.5


def betas(optimizer, _model):
    optimizer.param_groups[0]["betas"] = (0.8, 0.99)


def load(optimizer, _model):
    optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))


def more_parameters(optimizer, _model):
    optimizer.add_param_group({"params": list(Block().parameters())})


def evaluation(_optimizer, model):
    model.eval()


def frozen(_optimizer, model):
    model[0].up.weight.requires_grad_(requires_grad=False)


@pytest.mark.parametrize("change", [decay, betas, load, more_parameters, evaluation, frozen])
def test_whatever_is_in_the_kernels_and_was_changed_ends_the_graph_and_says_so(found, replays, change):
    model, optimizer = found.models["model"], found.optimizers[0]
    found.run()
    change(optimizer, model)
    with pytest.warns(UserWarning, match="runs without its graph from now on"):
        result = found.run()
    assert len(replays) == 1
    assert [dose.treatment.name for dose in found.plan] == ["fused-optimizer"]
    assert result.shape == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        before = model[2].weight.detach().clone()
        found.run()
    assert not torch.equal(model[2].weight, before)


def test_switched_off_and_on_again_it_replays_still(found, replays):
    """As in a race."""
    courses = found.end()
    found.run()
    found.resume(courses)
    found.run()
    assert len(replays) == 1
