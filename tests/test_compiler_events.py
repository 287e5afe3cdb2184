"""What is assumed of torch._dynamo's counters and of its list of compilations."""

import pytest
import torch

from gobrrr.work.compiler_events import Compilation, mark, since
from gobrrr.work.padding import padding_share


def eager(function):
    """Compiled by Dynamo and run as it is: breaks and guards are Dynamo's, and no C++ has to be built."""
    return torch.compile(function, backend="eager")


@pytest.fixture(autouse=True)
def fresh():
    torch.compiler.reset()
    yield
    torch.compiler.reset()


def test_where_nothing_is_compiled_there_is_nothing_to_tell():
    start = mark()
    torch.ones(2).sum()
    assert since(start) is None


def test_a_function_that_is_compiled_whole_and_once_has_no_events():
    start = mark()
    eager(lambda x: x * 2)(torch.ones(2))
    assert since(start) == Compilation({}, (), gave_up=False)


def test_a_break_is_told_by_its_reason():
    def broken(x: torch.Tensor) -> torch.Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    start = mark()
    eager(broken)(torch.ones(2))
    (reason,) = since(start).breaks
    assert "graph_break" in reason
    assert "\n" not in reason


def test_a_break_in_a_loop_leaves_the_function_uncompiled_and_is_told():
    def broken(x: torch.Tensor) -> torch.Tensor:
        for _ in range(2):
            x = x * 2
            torch._dynamo.graph_break()
        return x

    start = mark()
    eager(broken)(torch.ones(2))
    assert since(start).breaks


def test_what_is_compiled_again_names_the_guard_that_failed_and_in_the_end_gives_up():
    labels = [""]

    def labelled(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if labels[0] == "last" else x + 1

    start, compiled = mark(), eager(labelled)
    for number in range(10):
        labels[0] = f"step {number}"
        compiled(torch.ones(2))
    found = since(start)
    assert len(found.recompiles) >= 7
    assert "'step 0'" in found.recompiles[0]
    assert found.gave_up


def test_what_happened_before_the_mark_is_not_told():
    eager(lambda x: x * 2)(torch.ones(2))
    assert since(mark()) is None


# Padding


def test_padding_is_what_the_mask_leaves_out():
    mask = torch.tensor([[1, 1, 0, 0], [1, 0, 0, 0]])
    assert padding_share({"attention_mask": mask}) == pytest.approx(5 / 8)
    assert padding_share({"attention_mask": mask.bool()}) == pytest.approx(5 / 8)


@pytest.mark.parametrize(
    "inputs",
    [{}, (torch.ones(2, 2),), {"attention_mask": torch.ones(2, 1, 4, 4)}, {"attention_mask": None}],
    ids=["no mask", "no names", "scores", "none given"],
)
def test_padding_is_unknown_without_a_mask_of_tokens(inputs):
    assert padding_share(inputs) is None
