"""What a compiler takes for a constant while a search goes on, and what for a variable."""

import pytest
import torch
from torch._dynamo.variables import builder

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.optimizers import Gradients
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.work import compiler_events
from test_treat_reduce_overhead import WHOLE, reading
from treating import Block, Signs


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def takes_numbers(graph: torch.fx.GraphModule) -> bool:
    """Besides the one tensor: a size, or a rate."""
    return len(graph.graph.find_nodes(op="placeholder")) > 1


def test_a_number_that_the_step_reads_is_not_compiled_for_each_of_its_values():
    found = reading()
    found.become((WHOLE,))
    with patient_compiler(), preserved(found.origin):
        values = {found.run() for _ in range(2)}
        warm = compiler_events.mark()
        values |= {found.run() for _ in range(4)}
        assert compiler_events.since(warm) is None
    assert len(values) == 6, "and there were as many of them as steps"


def updating(optimizer):
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(Block(), Block()), torch.randn(8, 16)
    made = optimizer(model.parameters(), lr=1e-2)

    def step() -> torch.Tensor:
        made.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        made.step()
        return loss.detach()

    return model, step


@pytest.mark.parametrize("optimizer", [Signs, torch.optim.RMSprop])
def test_gradients_that_are_made_anew_are_no_other_program(optimizer):
    """As after zero_grad(), which lets go of them."""
    (model, step), (twin, eager) = updating(optimizer), updating(optimizer)
    found = subject_of(lambda: step)
    for one in (step, eager):
        one()
    found.become((Dose(TREATMENTS["compiled-optimizer"], ("0",)),))
    with patient_compiler():
        for one in (found.run, found.run, eager, eager):
            one()
        warm = compiler_events.mark()
        for one in (found.run, found.run, eager, eager):
            one()
        assert compiler_events.since(warm) is None
    found.end()
    for own, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, other)
        torch.testing.assert_close(own.grad, other.grad)


class Lazy(torch.optim.Optimizer):
    """Makes its momentum when it first needs it, as many do."""

    def __init__(self, parameters, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                if not state:
                    state["mean"] = torch.zeros_like(parameter)
                state["mean"].mul_(0.9).add_(parameter.grad)
                state["last"] = parameter.grad
                parameter.add_(state["mean"], alpha=-group["lr"])


def test_an_optimizer_may_begin_compiled_and_keep_gradients():
    """As when a prescription is applied before the first step."""
    (model, step), (twin, eager) = updating(Lazy), updating(Lazy)
    found = subject_of(lambda: step)
    found.become((Dose(TREATMENTS["compiled-optimizer"], ("0",)),))
    with patient_compiler():
        for one in (found.run, eager) * 4:
            one()
    (optimizer,) = found.optimizers
    found.end()
    for own, other in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(own, other)
        torch.testing.assert_close(optimizer.state[own]["last"], other.grad)
        assert optimizer.state[own]["mean"].data_ptr() != own.grad.data_ptr()


def test_gradients_that_somebody_keeps_are_theirs():
    weight, kept = torch.nn.Parameter(torch.ones(4)), []
    gradients = Gradients(torch.optim.SGD([weight]))
    for number in (2.0, 3.0):
        weight.grad = torch.full((4,), number)
        with gradients.in_tensors_that_stay():
            kept.append(weight.grad)
    assert [one.tolist() for one in kept] == [[2.0] * 4, [3.0] * 4]


def test_gradients_are_the_programs_own_again_and_nothing_holds_them():
    weight = torch.nn.Parameter(torch.ones(4))
    weight.grad = own = torch.full((4,), 2.0)
    gradients = Gradients(torch.optim.SGD([weight]))
    with gradients.in_tensors_that_stay():
        held = id(weight.grad)
        weight.grad.add_(1)
    assert weight.grad is own
    assert own.tolist() == [3.0] * 4
    assert gradients.standing[weight].untyped_storage().nbytes() == 0
    weight.grad = torch.full((4,), 5.0)
    with gradients.in_tensors_that_stay():
        assert id(weight.grad) == held
        assert weight.grad.tolist() == [5.0] * 4
        weight.grad = None
    assert weight.grad is None, "as the step has left it"


class Windows(torch.nn.Module):
    """As of pictures: their sizes come as numbers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.mix = torch.nn.Linear(width, width)

    def forward(self, x: torch.Tensor, height: int) -> torch.Tensor:
        return x + self.mix(x.view(len(x), height, -1, x.shape[-1]).roll(1, 1).flatten(1, 2))


def test_sizes_that_blocks_are_told_as_numbers_are_constants_in_a_search():
    graphs = []

    def backend(graph, _inputs):
        graphs.append([node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")])
        return graph.forward

    with patient_compiler():
        for width, height in ((8, 8), (16, 4), (32, 2)):
            block = Windows(width)
            block.compile(backend=backend)
            block(torch.randn(2, height * height, width), height)
    assert len(graphs) == 3
    assert all(isinstance(one, torch.Tensor) for graph in graphs for one in graph)


@pytest.mark.parametrize("inside", [True, False], ids=["in a search", "elsewhere"])
def test_sizes_and_rates_of_dropout_are_constants_in_a_search(inside):
    graphs = []

    def backend(graph, _inputs):
        graphs.append(graph)
        return graph.forward

    drop = torch.nn.Dropout(0.1)
    read = torch.compile(lambda x: drop(x) * 2, backend=backend)
    before = builder.process_automatic_dynamic

    def run() -> None:
        for rows, drop.p in ((4, 0.1), (5, 0.1), (6, 0.1), (6, 0.2)):
            read(torch.ones(rows, 3))

    if inside:
        with patient_compiler():
            run()
    else:
        run()
    assert builder.process_automatic_dynamic is before
    assert any(map(takes_numbers, graphs)) != inside
    assert len(graphs) == (4 if inside else 3)
