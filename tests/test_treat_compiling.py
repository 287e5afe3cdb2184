"""What a compiler takes for a constant while a search goes on, and what for a variable."""

import pytest
import torch
from torch._dynamo.variables import builder

from gobrrr.timing.state import preserved
from gobrrr.treat.compiling import patient_compiler
from gobrrr.work import compiler_events
from test_treat_reduce_overhead import WHOLE, reading


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
