"""The counted program found again in a profile."""

import math

import pytest
import torch
from torch.nn import functional

import zoo
from counting import programmed
from gobrrr.timing.join import LOOK_AHEAD, matched_ops, own_time, owners
from gobrrr.timing.recording import recorded
from gobrrr.timing.timeline import OpNode, op_forest
from gobrrr.work.op import Op, OpClass
from test_residency import Tape
from test_timeline import everywhere, op


def program(*names: str, shapes: dict[int, tuple[int, ...]] | None = None) -> list[Op]:
    """Launching ops of these names; a view where the name ends in `?`. Of shape (4,) unless told."""
    tape = Tape()
    for place, name in enumerate(names):
        x = tape.tensor(*(shapes or {}).get(place, (4,)))
        tape.op(name.rstrip("?"), OpClass.OTHER, [x], [x], launches=not name.endswith("?"))
    return tape.ops


def profile(*calls, shapes: dict[int, tuple[int, ...] | None] | None = None) -> list[OpNode]:
    """Trees of calls: a name, or a name with the calls inside it; each takes a second beyond those."""
    clock = iter(range(10**6))
    spans = []

    def call(one) -> None:
        name, inner = (one, ()) if isinstance(one, str) else one
        start, place = next(clock), len(spans)
        spans.append(None)
        for each in inner:
            call(each)
        shape = (shapes or {}).get(place, (4,))
        spans[place] = op(f"aten::{name}", start, next(clock), number=place + 1, shape=shape)

    for one in calls:
        call(one)
    return op_forest(spans)


def found(ops: list[Op], forest: list[OpNode]) -> list[tuple[int, str]]:
    return [(index, node.span.name.removeprefix("aten::")) for index, node in sorted(matched_ops(ops, forest).items())]


# Trees made by hand


def test_ops_are_found_inside_compositions_and_what_is_inside_them_is_passed_over():
    forest = profile(("linear", ["t", ("addmm", ["mm", "add"])]), ("relu", ["clamp_min"]))
    assert found(program("t?", "addmm", "relu"), forest) == [(1, "addmm"), (2, "relu")]


def test_the_inner_op_is_found_where_the_program_has_the_inner_one():
    forest = profile(("matmul", ["unsqueeze", ("mm", ["resolve_conj"]), "squeeze_"]), ("addmm", ["mm"]))
    assert found(program("mm", "addmm"), forest) == [(0, "mm"), (1, "addmm")]


def test_in_a_step_compiled_whole_what_follows_the_backward_pass_is_found_after_it():
    """The call of the step and that of what is left of it after a break last as long as all that they call."""
    ran = [("step", 0, 20, 1), ("forward", 1, 3, 1), ("mm", 1.5, 2, 1), ("rest", 4, 19, 1), ("adamw", 15, 16, 1)]
    backward = [("backward", 5, 12, 2), ("mm", 6, 7, 2), ("sum", 8, 9, 2)]
    forest = op_forest([op(f"aten::{name}", start, end, lane=lane) for name, start, end, lane in ran + backward])
    counted = program("mm", "mm", "sum", "adamw")
    assert [(index, node.span.start_s) for index, node in matched_ops(counted, forest).items()] == [
        (0, 1.5),
        (1, 6),
        (2, 8),
        (3, 15),
    ]


def test_threads_that_work_at_once_are_found_as_they_lie():
    loading = [op("aten::linear", 0, 10, lane=1), op("aten::addmm", 5, 9, lane=1), op("aten::copy_", 1, 2, lane=2)]
    assert found(program("addmm", "copy_"), op_forest(loading)) == [(0, "addmm"), (1, "copy_")]


def test_an_op_stays_whole_though_another_thread_works_meanwhile():
    forest = op_forest([op("aten::addmm", 0, 9, lane=1), op("aten::mm", 1, 2, lane=1), op("aten::copy_", 3, 4, lane=2)])
    assert found(program("addmm"), forest) == [(0, "addmm")]


@pytest.mark.parametrize(("counted", "ran"), [("add.Tensor", "add_"), ("mul_.Scalar", "mul"), ("add_.Tensor", "add_")])
def test_an_op_and_its_in_place_form_are_one(counted, ran):
    assert found(program(counted), profile(ran)) == [(0, ran)]


@pytest.mark.parametrize(("counted", "ran"), [("index_put", "_index_put_impl_"), ("new_zeros", "zeros")])
def test_what_autograd_calls_otherwise_where_nobody_counts_is_found(counted, ran):
    assert found(program("mul", counted, "add"), profile("mul", ran, "add_")) == [(0, "mul"), (1, ran), (2, "add_")]


def test_an_in_place_op_that_clones_first_is_found_behind_its_clone():
    forest = profile(("index_put_", ["clone", "_index_put_impl_"]), "relu")
    assert found(program("clone", "index_put_", "relu"), forest) == [(0, "clone"), (1, "index_put_"), (2, "relu")]


def test_a_composition_whose_inside_was_found_does_not_stand_for_a_later_op_of_its_name():
    forest = profile(("linear", ["mm"]), "relu", "linear")
    assert found(program("mm", "relu", "linear"), forest) == [(0, "mm"), (1, "relu"), (2, "linear")]


def test_ops_that_were_not_profiled_are_left_out_and_the_rest_is_found():
    forest = profile("mm", "exp")
    assert found(program("mm", "fill", "zeros_like", "exp"), forest) == [(0, "mm"), (3, "exp")]


def test_ops_that_were_not_counted_are_passed_over():
    forest = profile("empty", "mm", ("detach", ["detach_"]), "item", "exp", "copy_")
    assert found(program("mm", "exp"), forest) == [(0, "mm"), (1, "exp")]


@pytest.mark.parametrize(("missing", "is_found"), [(LOOK_AHEAD - 1, True), (LOOK_AHEAD, False)])
def test_a_name_too_far_ahead_is_a_coincidence(missing, is_found):
    ops = program(*["fill"] * missing, "exp")
    assert bool(found(ops, profile("exp"))) is is_found


def test_shapes_tell_two_of_one_name_apart():
    ops = program("mm", "mm", shapes={0: (8, 2), 1: (4,)})
    assert found(ops, profile("mm")) == [(1, "mm")]


def test_without_shapes_in_the_profile_order_decides():
    ops = program("mm", "mm", shapes={0: (8, 2)})
    forest = op_forest([op("aten::mm", 0, 1), op("aten::mm", 2, 3)])
    assert [node.span.start_s for node in matched_ops(ops, forest).values()] == [0, 2]


def test_rows_that_follow_from_values_need_not_be_as_many_as_were_counted():
    names = ("addmm", "gelu") * 3
    counted, ran = ({1: (rows, 8), 3: (rows + 40, 8), 5: (7, 8)} for rows in (116, 119))
    assert len(found(program(*names, shapes=counted), profile(*names, shapes=ran))) == len(names)


def test_zeros_of_nothing_do_not_stand_for_zeros_far_ahead():
    forest = profile("mm", "zeros", "exp", shapes={1: None})
    assert found(program("mm", "exp", "zeros", shapes={2: ()}), forest) == [(0, "mm"), (1, "exp")]


def test_each_op_is_found_once_and_in_order():
    names = ["mm", "add", "mm", "add", "mm"]
    matched = matched_ops(program(*names), profile(*names))
    assert [node.span.start_s for _, node in sorted(matched.items())] == [0, 2, 4, 6, 8]


def test_what_is_inside_an_op_belongs_to_it_and_of_two_around_to_the_inner():
    forest = profile(("index_put_", ["clone", ("_index_put_impl_", ["copy_"])]))
    numbers = {node.span.name: node.span.op for node in everywhere(forest)}
    owner = owners(matched_ops(program("clone", "index_put_"), forest))
    assert owner == {
        numbers["aten::clone"]: 0,
        numbers["aten::index_put_"]: 1,
        numbers["aten::_index_put_impl_"]: 1,
        numbers["aten::copy_"]: 1,
    }


def test_own_time_leaves_out_matched_ops_inside_however_deep():
    forest = profile(("index_put_", [("to", ["clone"]), "copy_"]))
    matched = matched_ops(program("clone", "index_put_"), forest)
    spans = frozenset(node.span for node in matched.values())
    assert [own_time(node, spans) for node in matched.values()] == [1, 7 - 1]


def test_every_call_inside_costs_and_one_that_is_nothing_else_takes_no_time():
    """A product with a scalar: of each call, the first and the last second are its own."""
    [node] = profile(("mul", [("to", [("_to_copy", ["empty_strided", "copy_"])])]))
    for call_s in (0, 1, 2, 3):
        assert own_time(node, frozenset(), call_s) == sum(max(0, one.self_s - call_s) for one in everywhere([node]))


# Real steps


def chain_with_everything():
    """Views, in-place ops that autograd can undo, gradients that are added up, and a composition."""
    weight = torch.randn(6, 6, requires_grad=True)
    x = torch.randn(5, 6)

    def step() -> None:
        hidden = functional.linear(x, weight).view(6, 5).t().contiguous()
        hidden[0] = 0
        hidden = functional.dropout(functional.linear(hidden, weight).relu_(), 0.5)
        functional.layer_norm(hidden, (6,)).square().mean().backward()
        weight.grad = None

    return step


STEPS = {
    "a chain with everything": chain_with_everything,
    "Mixtral": lambda: zoo.mixtral().step,
    "LSTM": lambda: zoo.lstm().step,
    "U-Net": lambda: zoo.unet().step,
}


@pytest.mark.parametrize("name", STEPS)
def test_every_launching_op_of_a_real_step_is_found_in_its_profile(name):
    step = STEPS[name]()
    step()
    ops = programmed(step).ops
    forest = op_forest(recorded(step, lambda: None, ops=True).ops)
    matched = matched_ops(ops, forest)
    assert [ops[index].name for index in range(len(ops)) if ops[index].launches and index not in matched] == []
    spans = frozenset(node.span for node in matched.values())
    assert len(spans) == len(matched)
    own = [own_time(node, spans) for node in matched.values()]
    inside = {id(node) for outer in matched.values() for node in everywhere(outer.children)}
    outermost = [node for node in matched.values() if id(node) not in inside]
    assert math.fsum(own) == pytest.approx(math.fsum(node.span.seconds for node in outermost))
