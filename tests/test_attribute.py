"""Each kernel's seconds of the step, and where they went."""

import math
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.attribute import attribute, queued_gaps_s, shared_seconds, shortest_s
from gobrrr.diagnose.floor import op_floors
from gobrrr.diagnose.regime import Regime
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.work.op import OpClass
from gobrrr.work.work import total
from test_exam import doing, exam, kernel, small_program
from test_floors import CPU

COMPUTE, TRANSFER, COMMUNICATION = KernelKind.COMPUTE, KernelKind.TRANSFER, KernelKind.COMMUNICATION

KERNELS = st.lists(
    st.builds(
        lambda start, length, kind: kernel(start, length, kind=kind),
        st.integers(0, 30),
        st.integers(0, 10),
        st.sampled_from(KernelKind),
    ),
    max_size=10,
)


def held(one: Kernel, moment: int) -> bool:
    return one.start_s <= moment < one.start_s + one.seconds


def shared_by_moments(kernels: list[Kernel]) -> list[float]:
    """Whole seconds, one after the other, each given to those that run in it."""
    seconds = [0.0] * len(kernels)
    for moment in range(50):
        running = [i for i, one in enumerate(kernels) if held(one, moment)]
        computing = [i for i in running if kernels[i].kind is COMPUTE]
        for i in computing or running:
            seconds[i] += 1 / len(computing or running)
    return seconds


# Several streams


@given(KERNELS)
def test_every_instant_is_shared_by_those_that_compute_in_it(kernels):
    assert shared_seconds(kernels) == pytest.approx(shared_by_moments(kernels))


TIMES = st.floats(0, 10)


@given(st.lists(st.builds(lambda at, s, kind: kernel(at, s, kind=kind), TIMES, TIMES, st.sampled_from(KernelKind))))
def test_every_stretch_between_two_moments_is_shared_by_those_that_hold_it(kernels):
    seconds = [0.0] * len(kernels)
    for start, end in pairwise(sorted(at for one in kernels for at in (one.start_s, one.start_s + one.seconds))):
        running = [i for i, one in enumerate(kernels) if one.start_s <= start < end <= one.start_s + one.seconds]
        computing = [i for i in running if kernels[i].kind is COMPUTE]
        for i in computing or running:
            seconds[i] += (end - start) / len(computing or running)
    assert shared_seconds(kernels) == pytest.approx(seconds, abs=1e-12)


@given(KERNELS)
def test_shared_seconds_add_up_to_the_time_in_which_anything_runs(kernels):
    union = sum(any(held(one, moment) for one in kernels) for moment in range(50))
    assert math.fsum(shared_seconds(kernels)) == pytest.approx(union)


@given(KERNELS)
def test_no_kernel_gets_more_than_it_took(kernels):
    assert all(own <= one.seconds + 1e-9 for own, one in zip(shared_seconds(kernels), kernels, strict=True))


@pytest.mark.parametrize("kind", [TRANSFER, COMMUNICATION])
def test_transfers_and_communication_count_only_where_nothing_computes(kind):
    kernels = [kernel(0, 4), kernel(2, 6, kind=kind), kernel(5, 1, stream=8)]
    assert shared_seconds(kernels) == [4, 6 - 2 - 1, 1]


def test_a_kernel_without_duration_takes_nothing_from_others():
    assert shared_seconds([kernel(0, 10), kernel(5, 0)]) == [10, 0]


# Gaps


@pytest.mark.parametrize(
    ("launched_s", "gap_s"),
    [(0.0, 3), (2.0, 3), (2.5, 0), (4.9, 0), (None, 3)],
    ids=["long before", "just in time", "in the gap", "at its end", "inside a graph"],
)
def test_a_gap_is_the_devices_own_if_the_next_kernel_had_been_asked_for(launched_s, gap_s):
    kernels = [kernel(1, 1, launched_s=0.0), kernel(5, 1, launched_s=launched_s)]
    assert queued_gaps_s(kernels, None) == gap_s
    assert queued_gaps_s(kernels[::-1], None) == gap_s


def test_there_is_no_gap_while_another_stream_runs():
    assert queued_gaps_s([kernel(3, 1), kernel(4, 9), kernel(6, 1, stream=8), kernel(13, 1)], None) == 0
    assert queued_gaps_s([], None) == queued_gaps_s([], 1.0) == 0


@pytest.mark.parametrize(
    ("launched_s", "gap_s"), [(0.5, 2), (1.5, 0), (None, 2)], ids=["while the step before ran", "later", "unseen"]
)
def test_the_gap_between_two_steps_counts_if_the_next_one_had_been_asked_for(launched_s, gap_s):
    """The step before ended at 1."""
    first = kernel(3, 1, launched_s=launched_s)
    assert queued_gaps_s([first], 2.0) == gap_s
    assert queued_gaps_s([first], None) == 0


def test_the_nodes_of_a_graph_are_queued_even_while_its_launch_goes_on():
    """One call asks for all three and returns when two have run; the host was late for the first."""
    nodes = [kernel(start, 1, launched_s=5.0) for start in (2, 4, 7)]
    assert queued_gaps_s(nodes, 1.5) == 1 + 2


def test_replays_that_are_asked_for_in_time_leave_all_gaps_to_the_device():
    replay = [kernel(start, 1, launched_s=0.0) for start in (3, 5, 9)]
    assert queued_gaps_s(replay, 2.5) == 2.5 + 1 + 3


# Busy time and the step


def test_kernels_that_fit_into_the_step_keep_their_seconds():
    kernels, scale = attribute(exam(kernel(0, 4), kernel(5, 3), step_s=10))
    assert scale == 1
    assert [one.seconds for one in kernels] == [4, 3]


def test_kernels_that_take_longer_than_the_step_are_scaled_to_it():
    kernels, scale = attribute(exam(kernel(0, 8), kernel(8, 4), step_s=10))
    assert scale == pytest.approx(1.2)
    assert [one.seconds for one in kernels] == pytest.approx([8 / 1.2, 4 / 1.2])


def test_on_a_cpu_ops_follow_one_another_whatever_their_starts_say():
    kernels, _ = attribute(exam(kernel(0, 3), kernel(1, 3), step_s=10, serial=True))
    assert [one.seconds for one in kernels] == [3, 3]


# Floors and parts


def test_each_kernel_has_the_floor_of_its_op_and_parts_that_add_up_to_its_seconds():
    program = small_program()
    floors = op_floors(program.ops, CPU)
    kernels, _ = attribute(exam(*(doing(i, op, i, 0.5) for i, op in enumerate(program.ops)), program=program))
    for one, floor in zip(kernels, floors, strict=True):
        assert one.floor == floor
        assert one.regime is floor.regime
        assert one.parts.attained == floor.seconds
        assert one.parts.attained + one.parts.latency + one.parts.inefficient == pytest.approx(0.5)


def test_kernels_that_do_an_op_together_share_its_floor_by_time():
    program = small_program()
    (whole, _) = op_floors(program.ops, CPU)
    kernels, _ = attribute(exam(*(doing(0, program.ops[0], at, at) for at in (1.0, 3.0)), program=program))
    assert [one.floor.seconds for one in kernels] == pytest.approx([whole.seconds / 4, whole.seconds * 3 / 4])


def test_up_to_the_shortest_kernel_of_its_class_time_is_latency():
    program = small_program()
    slow_start = replace(CPU, shortest_kernel_class_s={"gemm": 0.2, "elementwise": 0.4})
    made = exam(*(doing(i, op, i, 0.5) for i, op in enumerate(program.ops)), program=program, ceilings=slow_start)
    product, pointwise = attribute(made)[0]
    assert product.parts.latency == pytest.approx(0.2 - product.floor.seconds)
    assert pointwise.parts.latency == pytest.approx(0.4 - pointwise.floor.seconds)


@pytest.mark.parametrize(
    ("cls", "name", "seconds"),
    [
        (OpClass.CONTRACTION, "sm90_gemm", 3),
        (OpClass.CONTRACTION, "pytorch_flash::flash_fwd_kernel", 4),
        (OpClass.CONTRACTION, "fmha_cutlass", 4),
        (OpClass.NORMALIZATION, "layer_norm", 2),
        (OpClass.ELEMENTWISE, "add", 1),
        (OpClass.OPTIMIZER, "multi_tensor_apply", 1),
    ],
)
def test_the_shortest_kernel_is_that_of_the_class(cls, name, seconds):
    known = {"elementwise": 1.0, "reduction": 2.0, "gemm": 3.0, "attention": 4.0}
    one = kernel(name=name)
    assert shortest_s(one, OpClass(cls), replace(CPU, shortest_kernel_class_s=known)) == seconds
    assert shortest_s(one, OpClass(cls), CPU) == 0


def test_several_kernels_of_one_op_share_its_work_and_its_floor_by_time():
    program = small_program()
    product = program.ops[0]
    kernels, _ = attribute(exam(doing(0, product, 0, 3.0), doing(0, product, 3, 1.0), program=program))
    assert [one.share for one in kernels] == [0.75, 0.25]
    assert kernels[0].work == product.work.scaled(0.75)
    assert total(one.work for one in kernels) == product.work
    assert sum(one.floor.seconds for one in kernels) == pytest.approx(op_floors(program.ops, CPU)[0].seconds)


def test_a_generated_kernel_has_the_work_and_floor_of_its_own_operands_and_not_those_of_one_op():
    program = small_program()
    fused = replace(program.ops[1], name="triton_poi_fused_mm_relu_0", work=program.ops[1].work.scaled(3))
    (one,), _ = attribute(exam(kernel(0, 1, op=0, fused_from=(0, 1)), program=program, dispatched=(fused,)))
    assert one.op == fused
    assert one.floor == op_floors([fused], CPU)[0]


def test_a_kernel_of_an_op_that_is_not_there_is_uncounted():
    """An Exam is a file, and files come from strangers."""
    (one,), _ = attribute(exam(kernel(op=77), program=small_program()))
    assert (one.op, one.regime) == (None, Regime.UNCOUNTED)


@pytest.mark.parametrize(
    ("kind", "regime"),
    [(COMPUTE, Regime.UNCOUNTED), (TRANSFER, Regime.OVERHEAD), (COMMUNICATION, Regime.COMMUNICATION)],
)
def test_a_kernel_without_a_floor_belongs_to_what_its_kind_says(kind, regime):
    (one,), _ = attribute(exam(kernel(kind=kind), program=small_program()))
    assert (one.regime, one.floor, one.parts) == (regime, None, None)


def test_without_a_program_no_floor_is_known():
    op = small_program().ops[0]
    (one,), _ = attribute(exam(doing(0, op, 0, 1)))
    assert one.regime is Regime.UNCOUNTED
