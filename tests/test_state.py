"""After our steps the user's objects are what they were: the same objects, with the same bytes."""

import functools
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from gobrrr.timing.state import preserved
from gobrrr.timing.state.reach import reached
from gobrrr.timing.state.tensors import Tensors
from gobrrr.workload import Workload

SGD = functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9)
ADAMW = functools.partial(torch.optim.AdamW, lr=0.1, amsgrad=True)


class Patient(nn.Module):
    """Running statistics, a mask, tied weights, a frozen layer, a buffer and a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(4, 8, bias=False)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.5)
        self.frozen = nn.Linear(8, 8).requires_grad_(requires_grad=False)
        self.head = nn.Linear(8, 4, bias=False)
        self.head.weight = nn.Parameter(torch.empty(8, 4).t())  # not contiguous
        self.tied = nn.Linear(4, 8, bias=False)
        self.tied.weight = self.embed.weight
        self.register_buffer("seen", torch.zeros(6))
        self.register_buffer("tail", self.seen[4:])
        self.calls = 0
        with torch.no_grad():
            self.head.weight.normal_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen += 1
        hidden = self.drop(self.frozen(self.norm(self.embed(x) + self.tied(x))))
        return self.head(hidden).square().mean()


def workload(optimizer: Callable[..., torch.optim.Optimizer] = ADAMW, steps: int = 0, device: str = "cpu") -> Workload:
    torch.manual_seed(0)
    model = Patient().to(device)
    made = Workload(
        model, torch.randn(5, 4, device=device), loss=lambda out: out, optimizer=optimizer(model.parameters())
    )
    for _ in range(steps):
        made.step()
    return made


def bits(tensor: torch.Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()


def picture(thing: Any) -> Any:
    """Everything there is to see of tensors, modules and optimizers: identities, addresses, bytes, flags."""
    if isinstance(thing, torch.Tensor):
        where = (thing.data_ptr(), thing.storage_offset(), thing.shape, thing.stride(), thing.dtype)
        return id(thing), where, bits(thing), thing.requires_grad, picture(thing.grad) if thing.is_leaf else None
    if isinstance(thing, nn.Module):
        inner = [(name, id(module), module.training) for name, module in thing.named_modules()]
        named = [*thing.named_parameters(remove_duplicate=False), *thing.named_buffers(remove_duplicate=False)]
        return inner, [(name, picture(tensor)) for name, tensor in named]
    if isinstance(thing, torch.optim.Optimizer):
        return id(thing.state), picture(dict(thing.state)), picture(thing.param_groups)
    if isinstance(thing, dict):
        return [(id(key) if isinstance(key, torch.Tensor) else key, picture(value)) for key, value in thing.items()]
    if isinstance(thing, list | tuple):
        return [picture(value) for value in thing]
    return thing


def randomness() -> tuple[bytes, Any, Any]:
    return bits(torch.get_rng_state()), random.getstate(), np.random.get_state()[1].tobytes()  # noqa: NPY002


# Training steps


@pytest.mark.parametrize("optimizer", [SGD, ADAMW, torch.optim.Adagrad, torch.optim.RMSprop])
@pytest.mark.parametrize("steps", [0, 2])
def test_training_leaves_model_optimizer_and_inputs_bit_for_bit(optimizer, steps):
    patient = workload(optimizer, steps)
    before = picture([patient.model, patient.optimizer, patient.inputs]), patient.model.calls, randomness()
    with preserved(patient):
        for _ in range(3):
            patient.step()
        assert picture(patient.model) != before[0][0]
    assert (picture([patient.model, patient.optimizer, patient.inputs]), patient.model.calls, randomness()) == before


def test_the_next_step_computes_what_it_would_have_computed():
    examined, untouched = workload(steps=1), workload(steps=1)
    torch.manual_seed(7)
    with preserved(examined):
        examined.step()
        random.random()
    examined.step()
    torch.manual_seed(7)
    untouched.step()
    assert [bits(p) for p in examined.model.state_dict().values()] == [
        bits(p) for p in untouched.model.state_dict().values()
    ]


def test_optimizer_state_that_was_absent_is_absent_again():
    patient = workload(SGD)
    with preserved(patient):
        patient.step()
        assert patient.optimizer.state
    assert not patient.optimizer.state
    assert type(patient.optimizer.state).__name__ == "defaultdict"


def test_accumulated_gradients_stay_the_same_objects_with_the_same_values():
    patient = workload()
    patient.model(patient.inputs).backward()
    grads = {name: p.grad for name, p in patient.model.named_parameters()}
    before = picture(patient.model)
    with preserved(patient):
        patient.model(patient.inputs).backward()  # into them
        patient.step()  # and away with them
    assert all(p.grad is grads[name] for name, p in patient.model.named_parameters())
    assert picture(patient.model) == before
    assert any(grad is not None for grad in grads.values())
    assert patient.model.frozen.weight.grad is None


def test_tied_weights_stay_tied_and_views_stay_views():
    patient = workload()
    with preserved(patient):
        patient.step()
        patient.model.tied.weight = nn.Parameter(torch.randn(8, 4))
        patient.model.tail = torch.zeros(2)
    assert patient.model.tied.weight is patient.model.embed.weight
    patient.model.seen.fill_(9)
    assert patient.model.tail.tolist() == [9, 9]


def test_what_is_shared_is_copied_once():
    big = torch.zeros(1000)
    views = [big[:10], big[5:20], big.expand(3, 1000)[1], big[2:2]]
    with preserved(lambda: views) as kept:
        pass
    assert kept.copied_bytes == 4000
    with preserved(functools.partial(print, big[10:20], big[15:30])) as kept:
        pass
    assert kept.copied_bytes == 80


def test_a_raising_step_is_undone_and_its_error_passes():
    patient = workload()
    before = picture([patient.model, patient.optimizer]), randomness()

    def step() -> None:
        patient.step()
        patient.model.eval()
        torch.rand(1)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), preserved(step):
        step()
    assert (picture([patient.model, patient.optimizer]), randomness()) == before


def test_an_interrupt_is_undone_and_passes():
    patient = workload()
    before = picture(patient.model)

    def step() -> None:
        patient.step()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), preserved(step):
        step()
    assert picture(patient.model) == before


def test_a_second_interrupt_waits_until_everything_is_back(monkeypatch):
    patient = workload()
    before = picture(patient.model)
    put_back = Tensors.put_back

    def interrupted(tensors: Any) -> None:
        signal.raise_signal(signal.SIGINT)
        put_back(tensors)

    monkeypatch.setattr(Tensors, "put_back", interrupted)
    with pytest.raises(KeyboardInterrupt), preserved(patient):
        patient.step()
    assert picture(patient.model) == before
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_cannot_be_put_back_does_not_keep_the_rest_from_it():
    class Stubborn(list):
        def __setitem__(self, place: Any, value: Any) -> None:
            raise TypeError("no")

    model, stubborn = nn.Linear(2, 2), Stubborn([1])
    before = picture(model)

    def step() -> None:
        with torch.no_grad():
            model.weight.zero_()
        stubborn.append(2)

    with pytest.raises(TypeError, match="no"), preserved(step):
        step()
    assert picture(model) == before


# What else belongs to training


@pytest.mark.parametrize(
    "make",
    [
        lambda optimizer: torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5),
        lambda optimizer: torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=10),
        lambda optimizer: torch.optim.lr_scheduler.SequentialLR(
            optimizer,
            [torch.optim.lr_scheduler.ConstantLR(optimizer), torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)],
            milestones=[1],
        ),
    ],
)
def test_learning_rates_and_their_schedule_go_back(make):
    patient = workload(SGD)
    patient.optimizer.step()
    schedule = make(patient.optimizer)

    def step() -> None:
        patient.step()
        schedule.step()

    def seen() -> Any:
        inner = {name: value for name, value in schedule.state_dict().items() if name != "_schedulers"}
        return picture(patient.optimizer), repr(inner), schedule.get_last_lr()

    before = seen()
    with preserved(step):
        step()
        step()
        assert seen() != before
    assert seen() == before


def test_a_gradient_scaler_goes_back_to_before_its_first_use():
    model = nn.Linear(2, 2)
    optimizer, scaler = SGD(model.parameters()), torch.amp.GradScaler("cpu")

    def step() -> None:
        scaler.scale(model(torch.ones(1, 2)).sum()).backward()
        scaler.step(optimizer)
        scaler.update()

    before = picture([model, optimizer]), scaler.state_dict()
    with preserved(step):
        step()
    assert (picture([model, optimizer]), scaler.state_dict()) == before
    assert scaler._scale is None
    assert not scaler._per_optimizer_states


def test_training_flags_and_frozen_parameters_go_back():
    patient = workload()
    patient.model.drop.eval()
    before = picture(patient.model)
    with preserved(patient):
        patient.model.train().requires_grad_(requires_grad=False)
        patient.model.frozen.requires_grad_()
    assert picture(patient.model) == before


def test_parameters_that_the_step_replaces_come_back():
    patient = workload()
    before = picture([patient.model, patient.optimizer])
    with preserved(patient):
        patient.model.head.weight = nn.Parameter(torch.zeros(4, 8))
        patient.model.embed = nn.Linear(4, 8)
        patient.model.late = nn.Linear(1, 1)
        del patient.model.norm.running_mean
        patient.optimizer.param_groups[0]["params"].clear()
        patient.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        patient.optimizer.state.clear()
    assert picture([patient.model, patient.optimizer]) == before


def test_parameters_that_get_other_data_lie_where_they_lay():
    patient = workload()
    patient.model(patient.inputs).backward()
    before = picture(patient.model)
    with preserved(patient):
        for p in patient.model.parameters():
            p.grad = None
            p.data = torch.zeros(3, dtype=torch.float64)
    assert picture(patient.model) == before


def test_moving_a_model_to_another_type_is_undone():
    patient = workload()
    patient.model(patient.inputs).backward()
    before = picture(patient.model)
    with preserved(patient):
        patient.model.double()
        patient.model(patient.inputs.double()).backward()
        patient.model.zero_grad()
    assert picture(patient.model) == before


def test_a_storage_that_was_freed_is_filled_again():
    weights = torch.arange(10.0)
    with preserved(lambda: weights):
        weights.untyped_storage().resize_(0)
    assert weights.tolist() == list(range(10))


def test_inputs_that_the_model_changes_in_place_come_back():
    inputs = {"x": torch.randn(2, 4), "more": [torch.zeros(3), {"deep": torch.ones(2)}]}

    class InPlace(nn.Module):
        def forward(self, x: torch.Tensor, more: list[Any]) -> torch.Tensor:
            more[0].add_(1)
            more[1]["deep"] = more.append(x.mul_(2))
            return x

    patient = Workload(InPlace(), inputs)
    before = picture(inputs)
    with preserved(patient):
        patient.step()
    assert picture(inputs) == before


def test_a_leaf_that_autograd_took_over_is_a_leaf_again():
    weight, hidden = torch.ones(3, requires_grad=True), torch.zeros(3)
    with preserved(lambda: (weight, hidden)):
        hidden.add_(weight)
        assert not hidden.is_leaf
    assert hidden.is_leaf
    assert not hidden.requires_grad
    assert hidden.tolist() == [0, 0, 0]


def test_a_view_that_autograd_took_over_has_at_least_its_values_again():
    weight, hidden = torch.ones(3, requires_grad=True), torch.zeros(3)
    view = hidden[1:]
    with preserved(lambda: (weight, hidden, view)):
        view.add_(weight[1:])
    assert hidden.is_leaf
    assert view.tolist() == [0, 0]


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.eye(3).to_sparse(),
        lambda: torch.eye(3).to_sparse_csr(),
        lambda: torch.ones(2, 3, dtype=torch.complex64).conj(),
        lambda: torch.tensor([float("nan"), -0.0, float("inf")]),
        lambda: torch.ones(1, 3).expand(4, 3),
        lambda: torch.tensor([True, False]),
        lambda: torch.ones(4, dtype=torch.float8_e4m3fn),
        lambda: torch.tensor(3.0, dtype=torch.bfloat16),
        lambda: torch.empty(0),
    ],
)
def test_tensors_of_every_kind_come_back(make):
    kind = make()
    before = repr(kind)
    with preserved(lambda: kind):
        target = kind._base if kind.layout is torch.strided and kind._is_view() else kind
        target.fill_(0) if target.layout is torch.strided else target.neg_()
    assert repr(kind) == before


def test_tensors_made_for_inference_come_back():
    with torch.inference_mode():
        cache = torch.ones(3)
    with preserved(lambda: cache), torch.inference_mode():
        cache.zero_()
    assert cache.tolist() == [1, 1, 1]


def test_a_tensor_made_of_tensors_comes_back():
    from torch.testing._internal.two_tensor import TwoTensor

    pair = TwoTensor(torch.ones(2), torch.zeros(2))
    with preserved(lambda: pair):
        pair.a.add_(1)
        pair.b = torch.ones(2)
    assert (pair.a.tolist(), pair.b.tolist()) == ([1, 1], [0, 0])


def test_tensors_without_bytes_need_none():
    model = nn.Linear(1000, 1000, device="meta")
    with preserved(lambda: model) as kept:
        model.bias.requires_grad_(requires_grad=False)
    assert kept.copied_bytes == 0
    assert model.bias.requires_grad


def test_attributes_that_somebody_hung_on_a_parameter_come_back():
    """As Megatron does with `main_grad`."""
    weight = nn.Parameter(torch.zeros(3))
    weight.main_grad = torch.ones(3)
    with preserved(lambda: weight):
        weight.main_grad.add_(1)
        weight.touched = True
    assert weight.main_grad.tolist() == [1, 1, 1]
    assert not hasattr(weight, "touched")


# Whatever a step does


@dataclass
class World:
    """A few things that steps like to change."""

    tensors: list[torch.Tensor] = field(default_factory=lambda: [torch.arange(4.0), torch.ones(2, 2)])
    model: nn.Module = field(default_factory=lambda: nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2)))
    names: dict[str, Any] = field(default_factory=lambda: {"a": 1})

    def __post_init__(self) -> None:
        self.optimizer = ADAMW(self.model.parameters())
        self.tensors.append(self.tensors[1].view(4)[1:3])


def train(world: World) -> None:
    world.model(torch.randn(3, 2)).square().sum().backward()
    world.optimizer.step()


DEEDS: list[Callable[[World], Any]] = [
    train,
    lambda w: w.optimizer.zero_grad(),
    lambda w: w.optimizer.zero_grad(set_to_none=False),
    lambda w: w.model.eval(),
    lambda w: w.model.double(),
    lambda w: w.model.float(),
    lambda w: w.model.requires_grad_(requires_grad=False),
    lambda w: w.model.append(nn.ReLU()),
    lambda w: w.optimizer.param_groups[0].update(lr=0.5),
    lambda w: w.optimizer.load_state_dict(w.optimizer.state_dict()),
    lambda w: w.tensors[0].add_(1),
    lambda w: w.tensors[0].resize_(7),
    lambda w: w.tensors[1].t_(),
    lambda w: w.tensors[-1].zero_(),
    lambda w: w.tensors.append(torch.zeros(1)),
    lambda w: w.tensors.insert(0, torch.zeros(1)),
    lambda w: w.names.update(a=2, b=w.tensors),
    lambda w: vars(w).update(extra=1),
    lambda w: torch.rand(1),
    lambda w: torch.nn.utils.clip_grad_norm_(w.model.parameters(), 0.1),
]


def world_picture(world: World) -> Any:
    return picture([world.tensors, world.model, world.optimizer, world.names]), sorted(vars(world)), randomness()


@settings(max_examples=100)
@given(
    st.lists(st.sampled_from(DEEDS), max_size=3),
    st.lists(st.sampled_from(DEEDS), max_size=5),
    st.integers(0, 5),
)
def test_whatever_was_done_before_what_is_done_inside_leaves_no_trace(earlier, inside, first):
    """At the end, and whenever everything is put back on the way."""

    def attempt(deeds: list[Callable[[World], Any]]) -> None:
        for deed in deeds:
            try:
                deed(world)
            except (RuntimeError, IndexError):  # some do not go together: that is a raising step
                return

    world = World()
    attempt(earlier)
    before = world_picture(world)
    with preserved(lambda: world) as kept:
        attempt(inside[:first])
        kept.put_back()
        assert world_picture(world) == before
        attempt(inside[first:])
    assert world_picture(world) == before


def test_an_optimizer_that_steps_as_soon_as_a_gradient_is_there_is_put_back():
    layer = torch.nn.Linear(4, 4)
    for parameter in layer.parameters():
        own = torch.optim.AdamW([parameter])
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    optimizers = [one for one in reached(layer) if isinstance(one, torch.optim.AdamW)]
    assert len(optimizers) == 2

    def step():
        layer(torch.ones(2, 4)).sum().backward()

    step()
    before = [
        {key: value.clone() for key, value in state.items()} for one in optimizers for state in one.state.values()
    ]
    with preserved(step):
        step()
    after = [state for one in optimizers for state in one.state.values()]
    assert all(new[key].equal(old[key]) for new, old in zip(after, before, strict=True) for key in old)
