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
