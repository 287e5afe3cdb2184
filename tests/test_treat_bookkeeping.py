"""What a step counts or logs in Python is seen, and kept from compilers and graphs that would not do it."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.bookkeeping import books_kept, of_the_step
from gobrrr.treat.compiling import compiled_step
from gobrrr.treat.edit import swap_on
from gobrrr.treat.treatment import TREATMENTS, Unfit
from gobrrr.treat.treatments.compile_whole import WHOLE, whole_or_models
from treating import Block, bare, inference, modelless, subject, switched, training


class Trainer:
    """A step as many write it."""

    def __init__(self):
        self.model, self.x, self.steps, self.losses = Block(), torch.randn(2, 16), 0, []

    def __call__(self):
        loss = self.model(self.x).square().mean()
        loss.backward()
        self.model.zero_grad()
        self.steps += 1
        self.losses.append(loss.item())


def scheduled():
    model, x = Block(), torch.randn(2, 16)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 1000)

    def step():
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()

    return step


@pytest.mark.parametrize("make", [training, inference, bare, modelless, switched])
def test_a_step_of_tensors_alone_keeps_no_books(make):
    assert not books_kept(subject(make()))


def test_a_counter_and_a_log_are_books_of_the_step_and_are_put_back():
    trainer = Trainer()
    found = subject(trainer)
    assert of_the_step(books_kept(found), found) == [vars(trainer), trainer.losses]
    assert trainer.steps == len(trainer.losses) == 2


def test_a_schedule_of_rates_is_no_book_that_a_compiler_would_read():
    found = subject(scheduled())
    assert books_kept(found)
    assert not of_the_step(books_kept(found), found)


@pytest.mark.parametrize(("make", "sites"), [(Trainer, ("model:",)), (scheduled, WHOLE), (training, WHOLE)])
def test_of_a_step_that_keeps_books_the_models_are_compiled(make, sites):
    chart = SimpleNamespace(ops=(), exam=SimpleNamespace(ran=()), subject=subject(make()))
    assert whole_or_models(chart) == sites


@pytest.mark.parametrize("make", [Trainer, scheduled])
def test_a_step_that_keeps_books_is_not_captured(make):
    chart = SimpleNamespace(is_cuda=True, exam=SimpleNamespace(syncs=()), subject=subject(make()))
    chart.subject.optimizers.clear()
    with pytest.raises(Unfit, match="in Python"):
        TREATMENTS["whole-step-graph"].kind.sites(chart)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # Dynamo
def test_an_object_that_can_be_called_is_compiled_as_its_method_is():
    class Step:
        def __init__(self):
            self.model, self.x = nn.Linear(4, 4), torch.randn(3, 4)

        def __call__(self):
            self.model(self.x).sum().backward()  # where the graph breaks

    torch.compiler.reset()
    counters.clear()
    found = subject(Step())
    swap_on(compiled_step(found, "eager"))
    found.run()
    assert counters["stats"]["unique_graphs"]
