"""The time of a step by module: a tree whose parts add up, and the few lines of it that are shown."""

import math
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.attribute import Attributed, attribute
from gobrrr.diagnose.floor import Floor, Level
from gobrrr.diagnose.modules import ModuleNode, largest, module_tree, together
from gobrrr.diagnose.regime import Regime
from gobrrr.timing.kernel import KernelKind
from test_exam import in_modules, kernel, small_program


def held(*by_module: tuple[str, float]) -> list[Attributed]:
    """A kernel for each, one after the other."""
    return attribute(in_modules(*by_module))[0]


def everywhere(node: ModuleNode) -> Iterator[ModuleNode]:
    yield node
    for child in node.children:
        yield from everywhere(child)


PARTS = st.lists(st.sampled_from(["Net", "0", "1", "block", "attn"]), max_size=4)
KERNELS = st.lists(st.tuples(PARTS.map(".".join), st.floats(0, 100)), max_size=12)


@given(KERNELS)
def test_the_children_and_what_is_its_own_add_up_to_the_parent(kernels):
    tree = module_tree(held(*kernels))
    for root in (tree, together([tree])):
        for node in everywhere(root):
            parts = (node.own_s, *(child.seconds for child in node.children))
            assert math.fsum(parts) == pytest.approx(node.seconds)
            assert math.fsum(node.regimes_s.values()) == pytest.approx(node.seconds)
            assert all(child.path.startswith(node.path) for child in node.children)
        assert root.seconds == pytest.approx(math.fsum(seconds for _, seconds in kernels))
        assert root.calls == len(kernels)


@given(KERNELS)
def test_together_no_two_are_of_a_kind(kernels):
    kinds = [node.kind for node in everywhere(together([module_tree(held(*kernels))]))]
    assert len(kinds) == len(set(kinds))


def test_modules_that_a_profiler_knows_by_class_and_number_are_of_one_kind():
    """An attribute's own name may end so too, and says more."""
    tree = together([module_tree(held(("ViT_0.Layer_0", 1.0), ("ViT_0.Layer_11", 2.0), ("Net.conv_1", 4.0)))])
    assert {node.kind: node.modules for node in everywhere(tree) if not node.children} == {
        "ViT_*.Layer_*": 2,
        "Net.conv_1": 1,
    }


@given(KERNELS, st.integers(0, 9))
def test_no_more_lines_than_asked_for_and_what_is_left_out_is_no_longer(kernels, number):
    tree = module_tree(held(*kernels))
    every, shown = largest(tree, 10**6), largest(tree, number)
    assert len(shown) == min(number, len(every))
    assert [line for line in every if line in shown] == shown
    left = [line.node.seconds for line in every if line not in shown]
    assert max(left, default=0) <= min((line.node.seconds for line in shown), default=math.inf)


def test_a_module_holds_its_kernels_and_those_of_its_children():
    tree = module_tree(held(("Net", 1), ("Net.head", 2), ("Net.block.0", 4), ("Net.block.1", 8), ("", 5)))
    (net,) = tree.children
    assert (tree.path, tree.seconds, tree.own_s, tree.share) == ("", 20, 5, 1)
    assert (net.path, net.seconds, net.own_s, net.calls, net.share) == ("Net", 15, 1, 4, 0.75)
    assert [(child.path, child.seconds) for child in net.children] == [("Net.block", 12), ("Net.head", 2)]
    assert [child.kind for child in net.children[0].children] == ["Net.block.*"] * 2


def test_layers_of_a_kind_are_shown_as_one_below_the_module_that_they_are_part_of():
    kernels = held(
        *(pair for i in range(3) for pair in ((f"Net.block.{i}.attn", 2.0), (f"Net.block.{i}.mlp", 4.0))),
        ("Net.head", 1),
    )
    assert [
        (line.depth, line.label, line.node.modules, line.node.seconds) for line in largest(module_tree(kernels), 9)
    ] == [
        (0, "Net", 1, 19),
        (1, "block.*", 3, 18),
        (2, "mlp", 3, 12),
        (2, "attn", 3, 6),
        (1, "head", 1, 1),
    ]


def test_a_module_that_only_calls_another_is_passed_over():
    (line,) = largest(module_tree(held(("Net.inner.core", 1))), 9)
    assert (line.depth, line.label) == (0, "Net.inner.core")


def floors(*known: tuple[str, bool, float]) -> dict[str, float | None]:
    """By module, of kernels in it with a floor of 1 or none, so many seconds long."""
    op, one = small_program().ops[0], Floor(1.0, Regime.COMPUTE, Level.MATRIX)
    kernels = [
        Attributed(kernel(0, seconds), replace(op, module=module), 1.0, seconds, one if has else None, None)
        for module, has, seconds in known
    ]
    tree = module_tree(kernels)
    return {node.path: node.floor_s for root in (tree, together([tree])) for node in everywhere(root)}


def test_a_module_has_a_floor_if_all_of_its_kernels_have_one():
    found = floors(("Net.0", True, 2.0), ("Net.0", True, 2.0), ("Net.1", True, 2.0), ("Net.1", False, 2.0))
    assert found == {"": None, "Net": None, "Net.0": 2.0, "Net.1": None, "Net.*": None}


def test_a_percent_of_the_time_may_be_without_a_floor():
    found = floors(("Net.0", True, 100.0), ("Net.1", False, 0.5))
    assert found == {"": 1.0, "Net": 1.0, "Net.0": 1.0, "Net.1": None, "Net.*": 1.0}


def test_a_module_that_only_transfers_has_no_floor():
    copy = Attributed(kernel(0, 1.0, kind=KernelKind.TRANSFER), None, 1.0, 1.0, None, None)
    assert module_tree([copy]).floor_s is None


def test_a_step_without_modules_has_no_lines():
    assert largest(module_tree(held(("", 1))), 9) == []
    assert largest(module_tree([]), 9) == []
