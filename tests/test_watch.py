"""Listening to a program leaves it as it was, copies of it are deaf, and events within others are part of them."""

import copy
import io
import pickle

import pytest
import torch
from torch import nn
from torch.optim.optimizer import _global_optimizer_post_hooks
from torch.utils.checkpoint import checkpoint

from gobrrr.integrations.period import Kind
from gobrrr.integrations.watch import Watch, shape_of


@pytest.fixture
def heard():
    events = []
    watch = Watch(lambda event: events.append((event.kind.name[0], event.number)))
    watch.events = events
    yield watch
    watch.close()


def told(watch: Watch) -> str:
    return "".join(letter for letter, _ in watch.events)


def trained(model: nn.Module, optimizer: torch.optim.Optimizer, steps: int) -> None:
    for _ in range(steps):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()


def made() -> tuple[nn.Module, torch.optim.Optimizer]:
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    return model, torch.optim.SGD(model.parameters(), lr=0.1)


def test_from_the_second_time_on_all_is_heard_but_only_at_the_outside(heard):
    trained(*made(), 3)
    assert told(heard) == "B" + "FBO" * 2
    assert heard.backwards == 3
    assert heard.shapes == [((2, 4),)] * 2


def test_closed_nothing_is_left(heard):
    before = torch.optim.Optimizer.step, nn.Module.__call__
    model, optimizer = made()
    trained(model, optimizer, 2)
    heard.close()
    assert "step" not in vars(optimizer)
    assert not model._forward_hooks
    assert not model._forward_pre_hooks
    assert (torch.optim.Optimizer.step, nn.Module.__call__) == before
    assert not nn.modules.module._has_any_global_hook()
    assert not _global_optimizer_post_hooks
    assert torch.autograd.backward.__code__.co_filename.endswith("autograd/__init__.py")
    assert torch.compile.__code__.co_filename == torch.__file__
    number = len(heard.events)
    trained(model, optimizer, 2)
    assert len(heard.events) == number


def test_a_scheduler_before_or_behind_us_keeps_its_own_and_does_not_warn(heard):
    model, optimizer = made()
    first = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    own = optimizer.step
    trained(model, optimizer, 2)
    first.step()
    second = torch.optim.lr_scheduler.StepLR(optimizer, 1)
    trained(model, optimizer, 1)
    second.step()
    assert told(heard).endswith("FBO")
    heard.close()
    assert optimizer.step == own
    trained(model, optimizer, 1)
    second.step()


def test_a_copy_and_a_saved_model_are_deaf_and_know_nothing_of_us(heard):
    model, optimizer = made()
    trained(model, optimizer, 2)
    number = len(heard.events)
    saved = pickle.dumps(model)
    assert b"gobrrr" not in saved
    for twin in (copy.deepcopy(model), pickle.loads(saved)):  # noqa: S301 (made two lines above)
        twin(torch.ones(2, 4))
    copy.deepcopy(optimizer)
    torch.save(optimizer.state_dict(), io.BytesIO())
    assert len(heard.events) == number


def test_closures_checkpoints_and_steps_in_the_backward_are_within(heard):
    model, optimizer = made()
    inner = [torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()]
    for parameter, own in zip(model.parameters(), inner, strict=True):
        parameter.register_post_accumulate_grad_hook(lambda _, own=own: own.step())
    for _ in range(3):
        checkpoint(model, torch.ones(2, 4, requires_grad=True), use_reentrant=True).sum().backward()
    assert set(told(heard)) == {"F", "B"}
    assert told(heard).count("B") == 3
    heard.events.clear()
    for _ in range(2):
        optimizer.step(lambda: (loss := model(torch.ones(2, 4)).sum(), loss.backward()) and loss)
    assert told(heard)[-1] == "O"
    assert told(heard).count("O") == 1


def test_a_call_that_raises_is_no_event(heard):
    model, _ = made()
    for size in (4, 4, 5, 4):
        try:
            model(torch.ones(2, size))
        except RuntimeError:
            assert size == 5
    assert told(heard) == "FF"


def test_several_models_and_optimizers_have_numbers(heard):
    (one, first), (other, second) = made(), made()
    for _ in range(2):
        trained(one, first, 1)
        trained(other, second, 1)
    assert {number for letter, number in heard.events if letter == Kind.OPTIMIZER.name[0]} == {0, 1}
    assert {number for letter, number in heard.events if letter == Kind.FORWARD.name[0]} == {0, 1}


def test_shapes_are_those_of_all_tensors_in_there():
    x = torch.ones(2, 3)
    assert shape_of(((x, {"mask": x[0], "scale": 2.0}), [x.sum()])) == ((2, 3), (3,), ())


def test_compiled_functions_are_heard_and_a_module_that_compiles_itself(heard):
    double = torch.compile(lambda x: 2 * x, backend="eager")

    @torch.compile(backend="eager")
    def triple(x):
        return 3 * x

    model = nn.Linear(4, 4)
    model.compile(backend="eager")
    for _ in range(2):
        double(torch.ones(3)), triple(torch.ones(3)), model(torch.ones(2, 4))
    assert heard.events == [("F", 0), ("F", 1), ("F", 2)] * 2


def test_a_compiled_function_within_another_is_still_one_graph(heard):
    inner = torch.compile(lambda x: 2 * x, backend="eager")
    outer = torch.compile(lambda x: inner(x) + 1, backend="eager", fullgraph=True)
    assert outer(torch.ones(3)).tolist() == [3, 3, 3]
    assert told(heard) == "F"


def test_the_mask_of_the_latest_call_is_kept_while_it_is_listened_to(heard):
    class Masked(nn.Module):
        def forward(self, x, attention_mask=None):
            return x

    model, mask = Masked(), torch.tensor([[1, 0]])
    for _ in range(2):
        model(torch.ones(1, 2), attention_mask=mask)
    assert heard.inputs == {"attention_mask": mask}
    heard.close()
    assert not heard.inputs
