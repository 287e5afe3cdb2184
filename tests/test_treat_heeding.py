"""A captured step in the hands of a program, with a recorder in the place of the graph."""

import copy
import warnings
from contextlib import suppress
from functools import partial

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.treat.capture import Captured, Gradient, private_inputs
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.names import names_of
from gobrrr.treat.optimizers import Rates
from gobrrr.treat.places import entries
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
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
    group["lr"] *= 0.5
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


def test_rates_and_flags_of_a_captured_step_are_saved_as_they_were(found):
    plain = subject(training()).optimizers[0]
    saved = found.optimizers[0].state_dict()
    assert saved["param_groups"] == plain.state_dict()["param_groups"]
    assert found.optimizers[0].param_groups[0]["capturable"] is True


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


def other_weights(_optimizer, model):
    model.load_state_dict({name: one.clone() for name, one in model.state_dict().items()}, assign=True)


def other_memory(_optimizer, model):
    model[0].up.weight.data = model[0].up.weight.data.clone()


ENDING = [decay, betas, load, more_parameters, evaluation, frozen, other_weights, other_memory]


@pytest.mark.parametrize("change", ENDING)
def test_whatever_is_in_the_kernels_and_was_changed_ends_the_graph_and_says_so(found, replays, change):
    model, optimizer = found.models["model"], found.optimizers[0]
    found.run()
    change(optimizer, model)
    with pytest.warns(UserWarning, match="runs without its graph"):
        result = found.run()
    assert len(replays) == 1
    assert [dose.treatment.name for dose in found.plan] == ["fused-optimizer"]
    assert result.shape == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found.run()


def test_switched_off_and_on_again_it_replays_still(found, replays):
    """As in a race."""
    courses = found.end()
    found.run()
    found.resume(courses)
    found.run()
    assert len(replays) == 1


def test_weights_that_are_written_in_place_are_no_reason_to_end(found, replays):
    model = found.models["model"]
    model.load_state_dict({name: one + 1 for name, one in model.state_dict().items()})
    found.run()
    assert len(replays) == 1


# **** batches, gradients and results of a step of one's own ****


class Loop:
    """A program around a step that reads a batch under a name."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model, self.batch, self.factor = torch.nn.Linear(4, 1), (torch.ones(2, 4), torch.ones(2, 1)), 1.0
        self.last = None

    def loss(self) -> torch.Tensor:
        x, y = self.batch
        return (self.factor * (self.model(x) - y)).square().mean()

    def value(self) -> float:
        return self.loss().item()

    def backward(self) -> torch.Tensor:
        loss = self.loss()
        loss.backward()
        return loss.detach()


@pytest.fixture
def recorded(monkeypatch):
    """A graph that reads and writes where it read and wrote when it was captured, as graphs do."""

    def captured(found: Subject) -> Captured:
        loop = found.origin.__self__
        with preserved(found.origin):
            inputs = private_inputs(found, "cpu")
        (x, y), *_ = [one.ours for one in inputs if one.place.name == "batch"]
        weight, bias = loop.model.weight, loop.model.bias
        left = torch.full_like(weight, 7.0)  # what its warm-up has left there
        result = torch.zeros(())

        def replay() -> torch.Tensor:
            off = x @ weight.detach().T + bias.detach() - y
            left.add_(2 * (off * x).mean(0))
            return result.copy_(off.square().mean())

        given = tuple((one.place, one.ours) for one in inputs)
        made = tuple((place, result) for place in entries(vars(loop), ["last"]) if "last" in vars(loop))
        return Captured(replay, (Gradient(weight, left, added=True),), made, given)

    monkeypatch.setattr(whole_step_graph, "captured", captured)


def looped() -> tuple[Loop, Subject]:
    loop = Loop()
    found = subject_of(lambda: loop.backward)
    found.become((GRAPH,))
    return loop, found


def test_another_batch_under_the_same_name_is_read_and_none_is_written(recorded):
    """Also when it comes again, or lies in what others are parts of."""
    loop, found = looped()
    data = torch.arange(24.0).reshape(6, 4)
    batches = [(data[place : place + 2], torch.zeros(2, 1)) for place in (0, 2, 4)]
    kept = data.clone()
    for batch in (*batches, *batches):
        loop.batch = batch
        assert float(found.run()) == pytest.approx(loop.value())
    data.mul_(2)
    assert float(found.run()) == pytest.approx(loop.value())
    assert torch.equal(data, 2 * kept)
    assert found.plan


def test_names_that_exchange_their_batches_are_read_as_they_are(recorded):
    loop, found = looped()
    other = torch.zeros(2, 4), torch.ones(2, 1)
    for _ in range(4):
        loop.batch, other = other, loop.batch
        assert float(found.run()) == pytest.approx(loop.value())


def test_what_the_step_does_not_read_is_nobodys_business(recorded):
    loop, found = looped()
    for epoch in range(3):
        loop.epoch, loop.logs = epoch, {"loss": found.run()}
    assert found.plan


def test_what_the_step_puts_under_a_name_is_there_again(recorded, monkeypatch):
    monkeypatch.setattr(Loop, "backward", putting)
    loop, found = looped()
    for _ in range(3):
        found.run()
        assert float(loop.last) == pytest.approx(loop.value())
        loop.last = None
    assert found.plan


def putting(self) -> torch.Tensor:
    self.last = self.loss().detach()
    return self.last


@pytest.mark.parametrize("change", ["part", "mode"])
def test_a_part_of_a_model_that_is_another_ends_the_graph(recorded, change):
    loop, found = looped()
    loop.model.extra = torch.nn.Dropout()
    found.end()
    found.become((GRAPH,))
    found.run()
    if change == "part":
        loop.model.extra = torch.nn.Dropout()
    else:
        loop.model.extra.eval()
    with pytest.warns(UserWarning, match="without its graph"):
        found.run()


# **** names ****


class Trainer:
    def __init__(self) -> None:
        self.weight, self.unread, self.batch = 1.0, 2.0, torch.ones(2)

    def scaled(self) -> float:
        return self.weight

    def train(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.scaled()

    def __call__(self) -> torch.Tensor:
        return self.train(self.batch)


def names(step) -> set[str]:
    return {place.name for place in names_of(step)}


def test_names_are_found_behind_methods_functions_and_objects():
    trainer, batch = Trainer(), torch.ones(2)
    assert names(trainer) == {"weight", "batch"}
    assert names(partial(trainer.train, batch)) == {"weight"}
    through = names_of(lambda: trainer.train(batch))
    assert "weight" in {place.name for place in through}
    assert any(place.find() is batch for place in through)
    assert names(torch.ones) == set()


def test_inputs_are_tensors_that_a_step_only_reads():
    loop = Loop()
    total = torch.zeros(())

    def step():
        total.add_(loop.loss().detach())
        return total

    found = subject_of(lambda: step)
    assert {one.place.name for one in private_inputs(found, "cpu")} == {"batch"}


def test_what_a_step_puts_into_a_mapping_is_no_input_though_it_has_the_numbers_that_were_there():
    x, meter = torch.randn(4), {"loss": torch.zeros(())}

    def step():
        meter["loss"] = x.square().mean()

    found, given = subject_of(lambda: step), x
    found.run()
    (one,) = private_inputs(found, "cpu")
    assert one.theirs is given


@pytest.mark.parametrize("batch", [(torch.ones(3, 4), torch.ones(3, 1)), [torch.ones(2, 4), torch.ones(2, 1)], None])
def test_a_batch_of_another_kind_ends_the_graph(recorded, batch):
    loop, found = looped()
    loop.batch = batch
    with pytest.warns(UserWarning, match="without its graph"), suppress(TypeError):
        found.run()
    assert not found.plan


def test_in_a_search_a_graph_that_would_end_is_refused(recorded):
    loop, found = looped()
    loop.factor = 2.0
    with patient_compiler(), pytest.raises(Unfit, match="another in each step"):
        found.run()


def test_a_number_that_the_step_reads_ends_the_graph(recorded):
    loop, found = looped()
    loop.factor = 2.0
    with pytest.warns(UserWarning, match="without its graph"):
        assert float(found.run()) == pytest.approx(loop.value())


def test_gradients_are_added_up_until_they_are_set_to_none(recorded):
    loop, found = looped()
    found.run()
    once = loop.model.weight.grad.clone()
    found.run()
    torch.testing.assert_close(loop.model.weight.grad, 2 * once)
    loop.model.weight.grad = None
    found.run()
    torch.testing.assert_close(loop.model.weight.grad, once)
    loop.model.weight.grad = torch.zeros_like(once)
    found.run()
    torch.testing.assert_close(loop.model.weight.grad, once)
    expected = torch.autograd.grad(loop.loss(), loop.model.weight)[0]
    torch.testing.assert_close(once, expected)


def test_results_that_are_collected_are_those_of_their_steps(recorded):
    loop, found = looped()
    losses = [found.run()]
    loop.batch = (torch.full((2, 4), 5.0), torch.zeros(2, 1))
    losses.append(found.run())
    assert float(losses[0]) != float(losses[1])


def test_a_step_that_counts_in_python_is_not_captured_in_production_either(recorded):
    loop = Loop()
    calls = []

    def step():
        calls.append(1)
        return loop.loss()

    found = subject_of(lambda: step)
    with pytest.raises(Unfit, match="counts, logs"):
        found.become((GRAPH,))


# **** rates ****


def groups(*rates) -> torch.optim.Optimizer:
    optimizer = torch.optim.SGD([{"params": [torch.ones(2)]} for _ in rates], lr=0.1)
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = rate
    return optimizer


def test_a_rate_that_groups_share_as_a_tensor_stays_the_programs_own():
    """Neither another group's nor anybody's later rate is written into it."""
    one = torch.tensor(0.1)
    optimizer = groups(one, one)
    rates = Rates(optimizer)
    optimizer.param_groups[0]["lr"] = 0.5
    with rates.in_tensors():
        read = [group["lr"] for group in optimizer.param_groups]
        assert [float(rate) for rate in read] == pytest.approx([0.5, 0.1])
        assert not any(rate is one for rate in read)
    rates.heed()
    assert [rate.tensor.item() for rate in rates.rates] == pytest.approx([0.5, 0.1])
    assert optimizer.param_groups[0]["lr"] == 0.5
    assert optimizer.param_groups[1]["lr"] is one
    assert float(one) == pytest.approx(0.1)
    one.fill_(0.2)  # as schedulers do
    rates.heed()
    assert rates.rates[1].tensor.item() == pytest.approx(0.2)


def test_a_rate_may_be_a_tensor_of_one_number_and_come_with_a_group_that_was_added():
    optimizer = groups(0.1)
    rates = Rates(optimizer)
    optimizer.param_groups[0]["lr"] = torch.tensor([0.2])
    optimizer.add_param_group({"params": [torch.ones(2)], "lr": 0.3})
    with rates.in_tensors():
        assert [float(group["lr"]) for group in optimizer.param_groups] == pytest.approx([0.2, 0.3])
    assert [group["lr"] for group in optimizer.param_groups] == [torch.tensor([0.2]), 0.3]


@pytest.mark.parametrize("rate", [0.1, torch.tensor(0.1)])
def test_a_rate_that_the_optimizer_itself_changes_is_another_afterwards(rate):
    optimizer = groups(rate)
    with Rates(optimizer).in_tensors():
        optimizer.param_groups[0]["lr"].mul_(2)
    assert float(optimizer.param_groups[0]["lr"]) == pytest.approx(0.2)
    assert type(optimizer.param_groups[0]["lr"]) is type(rate)
