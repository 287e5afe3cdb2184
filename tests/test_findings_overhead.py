"""Findings about overhead, each on a made-up patient and on one that is well."""

from dataclasses import replace

import pytest

from gobrrr.exam import Exam
from gobrrr.timing.kernel import KernelKind
from gobrrr.work.compiler_events import Compilation
from gobrrr.work.op import OpClass, Phase
from gobrrr.work.program import Program
from test_exam import doing, exam, kernel
from test_findings import GPU, case, found, products, ran
from test_residency import Tape

DISPATCH_S = 10e-6
MACHINE = replace(GPU, dispatch_s=DISPATCH_S)


def idling(step_s: float = 10.0, busy_s: float = 4.0, host_s: float = 10.0, **changes) -> Exam:
    """The device waits for the host for the rest of the step."""
    return exam(kernel(0, busy_s), step_s=step_s, host_s=host_s, **changes)


# Tiny kernels


def adds(number: int, elements: int = 64, source: str | None = "tiny.py:3", **changes) -> Program:
    """Each after the other, on one tensor."""
    tape = Tape()
    x = tape.tensor(elements)
    for _ in range(number):
        x = tape.pointwise(x)
    ops = tuple(replace(op, source=source, **changes) for op in tape.ops)
    return replace(tape.program, ops=ops)


def test_kernels_shorter_than_a_dispatch_are_tiny_and_asking_for_them_is_at_stake():
    made = ran(adds(100), [1e-6] * 100, step_s=1e-3, host_s=1e-3, ceilings=MACHINE)
    one = found(made)["B103"]
    assert one.seconds_at_stake == pytest.approx(1e-3 - 1e-6, rel=0.1)
    assert one.device_seconds == pytest.approx(100e-6, rel=1e-3)
    assert one.evidence[0] == "100 of 100 kernels take less than the 10.0 µs of a dispatch"
    assert one.evidence[1] == "together 100 µs on the device, 1.00 ms to ask for (100 % of the step)"
    assert one.evidence[2] == "tiny.py:3: add, 100 kernels, 100 µs"


def test_in_a_graph_tiny_kernels_still_cost_the_device_their_latency():
    """The host asks once; the shortest kernel takes 1 µs, of which the work is nothing."""
    one = found(ran(adds(100), [1e-6] * 100, step_s=100e-6, host_s=5e-6, ceilings=MACHINE))["B103"]
    assert one.seconds_at_stake == one.device_seconds == pytest.approx(100e-6, rel=1e-3)


@pytest.mark.parametrize(("took_s", "step_s"), [(20e-6, 4e-3), (1e-6, 100e-3)], ids=["not tiny", "few for the step"])
def test_kernels_that_take_their_time_are_not_tiny(took_s, step_s):
    assert "B103" not in found(ran(adds(100), [took_s] * 100, step_s=step_s, host_s=1e-3, ceilings=MACHINE))


def test_without_a_measured_dispatch_nothing_is_tiny():
    assert "B103" not in found(ran(adds(100), [1e-6] * 100, step_s=1e-3, host_s=1e-3, ceilings=GPU))


# Loops


def looping(rounds: int, *, independent: bool, took_s: float = 2e-6, modules: bool = False) -> Exam:
    tape = Tape()
    x = tape.tensor(64)
    for _ in range(rounds):
        y = tape.pointwise(x, name="cos")
        x = x if independent else y
    module = (f"Net.layers.{i}" if modules else "Net" for i in range(rounds))
    ops = tuple(replace(op, source="loop.py:7", module=name) for op, name in zip(tape.ops, module, strict=True))
    program = replace(tape.program, ops=ops)
    step_s = rounds * max(took_s, DISPATCH_S)
    return ran(program, [took_s] * rounds, step_s=step_s, host_s=rounds * DISPATCH_S, ceilings=MACHINE)


def test_a_loop_over_independent_rounds_gains_all_but_one_of_them():
    one = found(looping(100, independent=True))["B104"]
    left_s = 200e-6 - 99 * 1e-6
    assert one.seconds_at_stake == pytest.approx(1e-3 - left_s, rel=1e-3), "the device, less its latency, is the step"
    assert one.evidence == ("loop.py:7: cos 100 times, 100 kernels, 200 µs",)


@pytest.mark.parametrize(
    "made",
    [
        looping(100, independent=False),
        looping(100, independent=True, modules=True),
        looping(100, independent=True, took_s=50e-6),
        looping(7, independent=True),
    ],
    ids=["each needs the last", "layers of a model", "long rounds", "few rounds"],
)
def test_what_cannot_be_stacked_or_need_not_be_is_no_loop(made):
    assert "B104" not in found(made)


def test_what_a_loop_leads_to_between_its_rounds_counts_as_needing_it():
    """Round by round through a second op: x → cos → sin → cos → …"""
    tape = Tape()
    x = tape.tensor(64)
    for _ in range(20):
        x = tape.pointwise(tape.pointwise(x, name="cos"), name="sin")
    program = replace(tape.program, ops=tuple(replace(op, source="loop.py:7") for op in tape.ops))
    assert "B104" not in found(ran(program, [1e-6] * 40, step_s=1e-3, host_s=1e-3, ceilings=MACHINE))


# Waiting for others


def test_time_in_the_data_loader_is_at_stake_as_far_as_the_host_limits():
    one = found(idling(idle={"data_loading": 0.5, "python": 0.5}))["B105"]
    assert one.seconds_at_stake == pytest.approx(3.0)
    assert one.device_seconds == 0
    assert one.evidence == ("3.00 s of idle time in the data loader, 30.0 % of the step",)


def test_on_a_cpu_all_time_in_the_data_loader_is_at_stake():
    one = found(exam(kernel(0, 4.0), serial=True, idle={"data_loading": 1.0}))["B105"]
    assert one.seconds_at_stake == pytest.approx(6.0)


@pytest.mark.parametrize("idle", [None, {"python": 1.0}, {"data_loading": 0.05, "python": 0.95}])
def test_batches_that_are_ready_are_no_wait(idle):
    assert "B105" not in found(idling(idle=idle))


def test_memory_calls_in_the_step_stall_it():
    made = idling(idle={"allocation": 0.5, "python": 0.5}, allocation_retries=3)
    one = found(made)["B108"]
    assert one.seconds_at_stake == pytest.approx(3.0)
    assert one.evidence[1] == "the allocator ran out 3 times and gave back what it kept"
    assert "B108" not in found(idling(idle={"python": 1.0}, allocation_retries=0))


# The compiler


def compiled(breaks=(), recompiles=(), *, gave_up=False, idle=None) -> Exam:
    return idling(compilation=Compilation(dict(breaks), tuple(recompiles), gave_up), idle=idle)


def test_breaks_are_named_the_most_frequent_first_and_promise_nothing():
    one = found(compiled({"print": 1, "item": 3}))["B106"]
    assert (one.seconds_at_stake, one.device_seconds) == (None, None)
    assert one.evidence == ("4 graph breaks for 2 reasons", "item (3 times)", "print")


def test_what_is_compiled_in_the_step_is_at_stake():
    one = found(compiled(recompiles=["n == 3", "n == 4"], idle={"compilation": 0.5, "python": 0.5}))["B107"]
    assert one.seconds_at_stake == pytest.approx(3.0)
    assert one.evidence[0] == "compiled again 2 times"
    assert one.evidence[2:] == ("failed: n == 3", "failed: n == 4")


def test_compiling_that_was_over_before_the_step_was_timed_costs_it_nothing():
    one = found(compiled(recompiles=["n == 3", "n == 4"]))["B107"]
    assert (one.seconds_at_stake, one.device_seconds) == (0.0, 0.0)


def test_what_an_uncompiled_function_would_gain_is_unknown():
    one = found(compiled(recompiles=["n == 3"] * 8, gave_up=True))["B107"]
    assert one.seconds_at_stake is None
    assert one.evidence[0] == "compiled again 8 times, then given up"


@pytest.mark.parametrize("made", [idling(), compiled(), compiled(recompiles=["size"])], ids=["eager", "whole", "once"])
def test_a_step_that_is_compiled_whole_and_once_is_well(made):
    assert {"B106", "B107"}.isdisjoint(found(made))


# Copies from the host


def copied(name: str, seconds: float = 2.0, *, covered: bool = False) -> Exam:
    copy = kernel(0 if covered else 4.0, seconds, name=name, kind=KernelKind.TRANSFER, stream=8)
    return exam(kernel(0, 4.0), copy, step_s=6.0, host_s=6.0)


def test_a_copy_from_pageable_memory_holds_both_sides():
    one = found(copied("Memcpy HtoD (Pageable -> Device)"))["B109"]
    assert one.seconds_at_stake == one.device_seconds == pytest.approx(2.0)
    assert one.evidence[0] == "1 copies from or to pageable memory take 2.00 s in which no kernel runs"


@pytest.mark.parametrize(
    "made",
    [
        copied("Memcpy HtoD (Pinned -> Device)"),
        copied("Memcpy HtoD (Pageable -> Device)", covered=True),
        copied("Memcpy DtoH (Device -> Pageable)", 1e-5),
    ],
    ids=["pinned", "behind a kernel", "four bytes"],
)
def test_copies_that_nobody_waits_for_do_not_block(made):
    assert "B109" not in found(made)


# Utilization


def utilized(percent: float | None, floor_share: float) -> Exam:
    """A product that takes its floor, in a step that is as long as told."""
    program = products("bf16", 1)
    floor_s = program.ops[0].work.matrix_flops / GPU.matmul_flops_per_s["bf16"]
    return exam(
        doing(0, program.ops[0], 0, floor_s),
        program=program,
        step_s=floor_s / floor_share,
        gpu_util_percent=percent,
        ceilings=GPU,
    )


def test_a_gpu_that_is_utilized_and_does_nothing_is_named():
    made = utilized(98.0, 0.05)
    one = found(made)["B110"]
    assert one.seconds_at_stake == pytest.approx(0.95 * made.step_s)
    assert one.evidence[0].endswith("5.0 %")


@pytest.mark.parametrize(("percent", "share"), [(None, 0.05), (60.0, 0.05), (98.0, 0.5)])
def test_a_gpu_that_is_not_called_busy_or_is_it_is_not(percent, share):
    assert "B110" not in found(utilized(percent, share))


# The optimizer


def updating(name: str, tensors: int, passes: int, numbers: int) -> Program:
    tape = Tape()
    for _ in range(tensors):
        parameter = tape.tensor(numbers)
        for _ in range(passes):
            tape.op(name, OpClass.OPTIMIZER, [parameter], [parameter], phase=Phase.OPTIMIZER)
    return tape.program


def test_an_optimizer_in_passes_gains_all_but_one_and_what_asking_takes():
    """Four passes over 64 MiB where one would do; and 4 ops of 10 µs each."""
    program = updating("mul_", 1, 4, 1 << 24)
    pass_s = 2 * (1 << 26) / GPU.dram_bytes_per_s
    made = ran(program, [pass_s] * 4, ceilings=MACHINE)
    one = found(made)["B207"]
    assert one.device_seconds == pytest.approx(3 * pass_s)
    assert one.evidence[0].startswith(
        "4 ops of the optimizer take 123 µs, 100 % of the step; one pass would take 30.9 µs"
    )
    assert "B201" not in found(made), "these seconds are counted once"


def test_an_optimizer_of_many_small_tensors_costs_the_host():
    program = updating("mul_", 50, 4, 64)
    one = found(ran(program, [1e-6] * 200, step_s=4e-3, host_s=4e-3, ceilings=MACHINE))["B207"]
    assert one.seconds_at_stake == pytest.approx(4e-3 - 200e-6, rel=0.1)


@pytest.mark.parametrize("name", ["_fused_adamw_"])
def test_a_fused_optimizer_is_well(name):
    assert "B207" not in found(ran(updating(name, 1, 1, 1 << 24), [1e-3], ceilings=MACHINE))


def test_a_product_in_the_optimizer_is_a_product():
    tape = Tape()
    tape.product(*(tape.tensor(4096, 4096, dtype="bf16") for _ in range(2)), phase=Phase.OPTIMIZER)
    assert "B207" not in found(ran(tape.program, [0.2e-3], ceilings=MACHINE))


def test_an_optimizer_that_is_nothing_beside_the_step_is_left_alone():
    assert "B207" not in found(ran(updating("mul_", 1, 4, 64), [1e-6] * 4, step_s=1.0, ceilings=MACHINE))


# What the host pays for an op


def test_an_op_costs_the_host_its_share_of_its_time_within_bounds():
    def op_s(host_s: float) -> float:
        return case(ran(adds(100), [1e-6] * 100, step_s=1.0, host_s=host_s, ceilings=MACHINE)).op_s

    assert op_s(0.0) == DISPATCH_S
    assert op_s(100 * 3 * DISPATCH_S) == pytest.approx(3 * DISPATCH_S)
    assert op_s(1.0) == pytest.approx(10 * DISPATCH_S), "somebody else's seconds"
