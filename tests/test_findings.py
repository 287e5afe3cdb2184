"""Each finding on a made-up patient that has the problem, and on a healthy twin that does not."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counting import programmed
from gobrrr.diagnose.attribute import attribute
from gobrrr.diagnose.counterfactual import Sides
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.diagnose.findings import FINDINGS, Case, Finding, Rule, Stake, find_all, nothing_to_gain
from gobrrr.diagnose.fusion import fused_floor
from gobrrr.exam import Exam
from gobrrr.timing.kernel import KernelKind, Sync
from gobrrr.work.op import OpClass, Phase
from gobrrr.work.program import Program
from test_exam import doing, exam, kernel
from test_floors import CPU
from test_fusion import H200
from test_residency import MiB, Tape, moving

GPU = replace(H200, cache_bytes=0, shortest_kernel_class_s={"elementwise": 1e-6, "gemm": 2e-6, "reduction": 1e-6})
"""With no cache, so that a byte is a byte."""


def case(made: Exam) -> Case:
    known = diagnose(made)
    return Case(
        exam=made,
        kernels=tuple(attribute(made)[0]),
        sides=Sides(known.host_s, known.device_s, made.serial),
        limiter=known.limiter,
        fused=None if made.program is None else fused_floor(made.program, made.ceilings),
    )


def found(made: Exam) -> dict[str, Finding]:
    return {one.code: one for one in find_all(case(made))}


def ran(program: Program, seconds: list[float], **changes) -> Exam:
    """Each op as one kernel, back to back; the device is the step unless told otherwise."""
    starts = [sum(seconds[:place]) for place in range(len(seconds))]
    launched = [i for i, op in enumerate(program.ops) if op.launches]
    kernels = [doing(i, program.ops[i], start, took) for i, start, took in zip(launched, starts, seconds, strict=True)]
    plain = {"step_s": sum(seconds), "host_s": 0.0, "ceilings": GPU}
    return exam(*kernels, program=program, **{**plain, **changes})


def chain(ops: int, name: str = "relu", fmas: float = 1) -> Program:
    tape = Tape()
    x = tape.tensor(64 * MiB)
    for _ in range(ops):
        x = tape.pointwise(x, name=name, fmas=fmas)
    return tape.program


def products(dtype: str, number: int = 4, size: int = 4096) -> Program:
    tape = Tape()
    for _ in range(number):
        tape.product(tape.tensor(size, size, dtype=dtype), tape.tensor(size, size, dtype=dtype))
    return tape.program


def attention(heads: int = 64, tokens: int = 2048, width: int = 64) -> Program:
    """Written out: queries times keys, scaled, softmax, times values."""
    tape = Tape()
    q, k, v = (tape.tensor(heads * tokens, width, dtype="bf16") for _ in range(3))
    scores, weights = (tape.tensor(heads, tokens, tokens, dtype="bf16") for _ in range(2))
    out = tape.tensor(heads * tokens, width, dtype="bf16")
    flops = 2 * heads * tokens * tokens * width
    contraction = OpClass.CONTRACTION
    tape.op("bmm", contraction, [q, k], [scores], work=moving([q, k], [scores], matrix={"bf16": flops}))
    scaled = tape.pointwise(scores, name="mul")
    tape.op("_softmax", OpClass.NORMALIZATION, [scaled], [weights])
    tape.op("bmm", contraction, [weights, v], [out], work=moving([weights, v], [out], matrix={"bf16": flops}))
    return tape.program


def flash(heads: int = 64, tokens: int = 2048, width: int = 64) -> Program:
    tape = Tape()
    q, k, v, out = (tape.tensor(heads * tokens, width, dtype="bf16") for _ in range(4))
    work = moving([q, k, v], [out], matrix={"bf16": 4 * heads * tokens * tokens * width})
    tape.op("_scaled_dot_product_flash_attention", OpClass.CONTRACTION, [q, k, v], [out], work=work)
    return tape.program


# The host


def test_a_step_that_waits_for_the_host_is_host_bound_and_the_difference_is_at_stake():
    one = found(exam(kernel(0, 41), kernel(41, 0), step_s=92.6, host_s=90.0))["B101"]
    assert one.seconds_at_stake == pytest.approx(49)
    assert one.device_seconds == 0
    assert one.evidence[0] == "the host needs 1 min 30 s, the device 41.0 s"
    assert one.evidence[1].startswith("2 kernels a step, 45.0 s")
    assert one.evidence[2] == "the device is idle for 55.7 % of the step"


@pytest.mark.parametrize(("host_s", "busy_s"), [(3.0, 10.0), (9.5, 9.5), (5.0, 5.0), (None, 1.0)])
def test_a_step_is_not_host_bound_if_the_device_works_all_the_time_or_nobody_knows(host_s, busy_s):
    assert "B101" not in found(exam(kernel(0, busy_s), host_s=host_s))


def test_python_on_a_cpu_is_at_stake_in_full():
    one = found(exam(kernel(0, 0.5), step_s=10.0, serial=True))["B101"]
    assert one.seconds_at_stake == pytest.approx(9.5)


# Syncs


def synced(*syncs: Sync, busy_s: float, host_s: float | None) -> Exam:
    return exam(kernel(0, busy_s), step_s=10.0, host_s=host_s, syncs=syncs)


def test_each_line_that_waits_is_named_with_how_often_and_how_long():
    item, log = Sync("cudaStreamSynchronize", 1.0, "train.py:31"), Sync("cudaMemcpy", 3.0, "log.py:7")
    one = found(synced(item, log, item, Sync("cudaMemcpy", 0.5, None), busy_s=5.0, host_s=4.5))["B102"]
    assert one.evidence == (
        "log.py:7: cudaMemcpy, 3.00 s",
        "train.py:31: cudaStreamSynchronize 2 times, 2.00 s",
        "line not known: cudaMemcpy, 500 ms",
    )


@pytest.mark.parametrize(
    ("busy_s", "host_s", "synced_s", "gained_s"),
    [(4, 6, 4, 4), (9.9, 5, 5, 0.1), (5, 5, 5, 5), (5, 5, 3, 3), (1, 10, 0.5, 0.5), (4, 5, 6, 6)],
    ids=["takes turns", "the device limits", "equal halves", "less was waited", "its own cost", "waiting and cost"],
)
def test_without_syncs_the_slower_side_is_the_step(busy_s, host_s, synced_s, gained_s):
    one = found(synced(Sync("sync", synced_s, "a.py:1"), busy_s=busy_s, host_s=host_s))["B102"]
    assert one.seconds_at_stake == pytest.approx(gained_s)


def test_what_a_sync_costs_the_step_is_unknown_if_the_host_is():
    one = found(synced(Sync("sync", 1.0, "a.py:1"), busy_s=5.0, host_s=None))["B102"]
    assert one.seconds_at_stake is None
    assert nothing_to_gain([one], 10.0) is None


def test_many_lines_are_counted_after_the_first():
    one = found(synced(*(Sync("sync", 0.1, f"a.py:{line}") for line in range(10)), busy_s=5.0, host_s=5.0))["B102"]
    assert (len(one.evidence), one.evidence[-1]) == (9, "and 2 more lines")


@pytest.mark.parametrize("syncs", [None, ()], ids=["unknown", "none"])
def test_a_step_without_syncs_has_no_sync_points(syncs):
    assert "B102" not in found(exam(kernel(0, 5.0), host_s=5.0, syncs=syncs))


# Chains


def test_a_chain_of_three_gains_two_thirds_when_fused():
    one = found(ran(chain(3), [1e-3] * 3))["B201"]
    assert one.device_seconds == one.seconds_at_stake == pytest.approx(2e-3)
    assert one.evidence == ("forward, relu, relu, relu: 3.00 ms, 2.00 ms less if fused (1.61 GB → 537 MB)",)


def test_a_chain_has_no_step_seconds_at_stake_while_the_host_limits():
    """As in BERT-large: the host needs 90 ms of 92.6, the kernels 41, of which chains are many."""
    one = found(ran(chain(3), [10e-3] * 3, step_s=92.6e-3, host_s=90e-3))["B201"]
    assert one.seconds_at_stake == 0
    assert one.device_seconds == pytest.approx(20e-3)


def test_on_a_cpu_a_chain_has_its_device_seconds_at_stake_whatever_python_takes():
    one = found(ran(chain(3), [0.1] * 3, step_s=0.5, serial=True, ceilings=CPU))["B201"]
    assert one.seconds_at_stake == pytest.approx(0.2)


def test_a_single_op_is_no_chain():
    assert found(ran(chain(1), [1e-3])) == {}


def test_a_chain_that_ran_as_one_kernel_is_fused_already():
    program = chain(3)
    fused = doing(0, program.ops[0], 0, 1e-3, name="triton_poi_fused", fused_from=(0, 1, 2))
    assert found(exam(fused, program=program, step_s=1e-3, host_s=0.0, ceilings=GPU)) == {}


def test_a_copy_from_the_host_is_fused_with_nothing():
    program = chain(2)
    copied, kernel = (doing(i, op, i, 1.0) for i, op in enumerate(program.ops))
    across = replace(copied, kind=KernelKind.TRANSFER)
    assert "B201" in found(exam(copied, kernel, program=program, step_s=2.0, host_s=0.0, ceilings=GPU))
    assert "B201" not in found(exam(across, kernel, program=program, step_s=2.0, host_s=0.0, ceilings=GPU))


def test_what_two_kernels_of_a_chain_fused_already_is_not_gained_again():
    program = chain(4)
    kernels = [doing(2 * i, program.ops[2 * i], i, 1.0, fused_from=(2 * i, 2 * i + 1)) for i in range(2)]
    one = found(exam(*kernels, program=program, step_s=2.0, host_s=0.0, ceilings=GPU))["B201"]
    assert one.device_seconds == pytest.approx(1.0)


def test_a_chain_whose_arithmetic_fills_its_time_gains_nothing():
    slots = 500
    busy_s = 2 * slots * 64 * MiB / GPU.vector_flops_per_s["fp32"]
    assert found(ran(chain(3, fmas=slots), [busy_s] * 3)) == {}


def test_one_kernel_is_never_shorter_than_the_shortest():
    slow_start = replace(GPU, shortest_kernel_class_s={"elementwise": 2.5e-3})
    assert found(ran(chain(3), [1e-3] * 3, ceilings=slow_start))["B201"].device_seconds == pytest.approx(0.5e-3)


def test_a_chain_is_not_judged_by_a_ceiling_that_nobody_measured():
    assert found(ran(chain(3), [1e-3] * 3, ceilings=replace(GPU, vector_flops_per_s={}))) == {}


def test_what_the_backward_reads_is_written_even_if_fused():
    """Of in-out in-out, the value between stays: 4 accesses become 3."""
    tape = Tape()
    saved = tape.pointwise(tape.tensor(64 * MiB), name="relu")
    tape.pointwise(saved, name="cos")
    tape.pointwise(saved, name="threshold_backward", phase=Phase.BACKWARD)
    one = found(ran(tape.program, [1.0] * 3))["B201"]
    assert one.device_seconds == pytest.approx(0.5)


def test_an_input_that_all_of_a_chain_read_is_read_once():
    tape = Tape()
    x = tape.tensor(64 * MiB)
    y = tape.pointwise(x, name="cos")
    tape.pointwise(x, y, name="mul")
    assert found(ran(tape.program, [2.0, 3.0]))["B201"].device_seconds == pytest.approx(1.0 + 2.0)


def test_of_an_input_that_one_op_picks_from_and_the_next_reads_whole_the_rest_is_read_too():
    """As a loss's gradient and that of its softmax: 1 % of it, then all of it."""
    tape = Tape()
    x = tape.tensor(64 * MiB)
    picked = tape.tensor(64 * MiB)
    work = replace(moving([x], [picked]), bytes_read=x.nbytes / 100)
    tape.op("nll_loss_backward", OpClass.INDEXING, [x], [picked], work=work)
    tape.pointwise(x, picked, name="mul")
    expected = 1.0 / 1.01 + 3.0 * 1.01 / 3
    assert found(ran(tape.program, [1.0, 3.0]))["B201"].device_seconds == pytest.approx(expected)


def test_ops_after_one_product_that_share_nothing_are_no_chain():
    """As the sums of three gradients that an attention's backward gives."""
    tape = Tape()
    grad, one, other = (tape.tensor(4096, 4096, dtype="bf16") for _ in range(3))
    tape.op("two_products", OpClass.CONTRACTION, [grad], [one, other])
    for result in (one, other):
        tape.pointwise(result, name="cos")
    assert [len(each.group.ops) for each in fused_floor(tape.program, GPU).groups] == [3]
    assert "B201" not in found(ran(tape.program, [1e-3] * 3))


def test_a_product_stays_as_it_is_and_so_does_what_one_op_after_it_reads():
    tape = Tape()
    tape.pointwise(tape.product(*(tape.tensor(4096, 4096, dtype="bf16") for _ in range(2))), name="relu")
    assert found(ran(tape.program, [0.2e-3, 1e-3])) == {}


def test_layers_that_repeat_a_chain_are_one_line():
    tape = Tape()
    for _ in range(12):
        x = tape.product(*(tape.tensor(4096, 4096, dtype="bf16") for _ in range(2)))
        tape.pointwise(tape.pointwise(x, name="relu"), name="cos")
    (line,) = found(ran(tape.program, [1e-3] * 36))["B201"].evidence
    assert line.startswith("forward, 12 times relu, cos: 24.0 ms, 12.0 ms less if fused")


def test_a_gain_too_small_to_measure_is_no_finding():
    assert "B201" not in found(ran(chain(3), [1e-6] * 3, step_s=1.0))


# Attention


def test_scores_in_memory_are_unfused_attention_and_all_above_the_flash_floor_is_at_stake():
    program = attention()
    fused = fused_floor(program, GPU)
    one = found(ran(program, [1e-3, 1e-3, 1e-3, 1e-3]))["B202"]
    assert one.device_seconds == one.seconds_at_stake == pytest.approx(4e-3 - fused.seconds)
    assert one.evidence[0].startswith("1 in a step take 4.00 ms; flash kernels' floor is ")
    assert "B201" not in found(ran(program, [1e-3, 1e-3, 1e-3, 1e-3]))


def test_the_gradient_of_unfused_attention_is_unfused_too():
    def step() -> None:
        q, k, v = (torch.ones(4, 32, 8, requires_grad=True) for _ in range(3))
        (torch.softmax(q @ k.mT, -1) @ v).sum().backward()

    program = programmed(step)
    launches = sum(op.launches for op in program.ops)
    one = found(ran(program, [1.0] * launches))["B202"]
    assert one.evidence[0].startswith("2 in a step take")
    assert one.device_seconds > 7


def test_a_flash_kernel_is_never_shorter_than_the_shortest():
    slow_start = replace(GPU, shortest_kernel_class_s={"attention": 3e-3})
    made = ran(attention(), [1e-3, 1e-3, 1e-3, 1e-3], ceilings=slow_start)
    assert found(made)["B202"].device_seconds == pytest.approx(1e-3)


def test_flash_attention_is_not_unfused():
    assert found(ran(flash(), [0.2e-3])) == {}


def test_a_flash_op_that_a_compiler_took_apart_is_lost():
    program = flash()
    kernels = [doing(0, program.ops[0], i, 1.0, name=name) for i, name in enumerate(["gemm", "triton_softmax", "gemm"])]
    codes = found(exam(*kernels, program=program, step_s=3.0, host_s=0.0, ceilings=GPU))
    assert codes["B203"].device_seconds == pytest.approx(3.0 - fused_floor(program, GPU).seconds)
    assert "B202" not in codes


def test_two_products_with_no_softmax_between_are_no_attention():
    tape = Tape()
    x = tape.pointwise(tape.product(*(tape.tensor(4096, 4096, dtype="bf16") for _ in range(2))), name="relu")
    tape.product(x, tape.tensor(4096, 4096, dtype="bf16"))
    assert found(ran(tape.program, [0.2e-3] * 3)) == {}


# Products in fp32


def test_products_in_fp32_gain_what_tf32_is_faster_by():
    one = found(ran(products("fp32"), [3e-3] * 4))["B301"]
    assert one.device_seconds == pytest.approx(12e-3 * (1 - 50 / 400))
    assert one.evidence == ("4 kernels in fp32 take 12.0 ms", "fp32 50.0 TFLOP/s, tf32 400 TFLOP/s: 8.00x")


@pytest.mark.parametrize(("mode", "took_s"), [("bf16", 0.2e-3), ("tf32", 0.4e-3)])
def test_products_in_a_fast_mode_are_well(mode, took_s):
    program = products("bf16")
    ops = tuple(replace(op, work=replace(op.work, matrix={mode: op.work.matrix_flops})) for op in program.ops)
    assert found(ran(replace(program, ops=ops), [took_s] * 4)) == {}


@pytest.mark.parametrize("rates", [{}, {"bf16": 10e9}, {"bf16": 140e9}], ids=["unknown", "slower", "hardly faster"])
def test_fp32_is_well_where_nothing_is_much_faster(rates):
    ceilings = replace(CPU, matmul_flops_per_s={"fp32": 100e9, **rates})
    assert found(ran(products("fp32", 1, 512), [3e-3], serial=True, ceilings=ceilings)) == {}


def test_without_tf32_the_promise_is_bf16s():
    ceilings = replace(GPU, matmul_flops_per_s={"fp32": 50e12, "bf16": 800e12})
    one = found(ran(products("fp32"), [3e-3] * 4, ceilings=ceilings))["B301"]
    assert one.device_seconds == pytest.approx(12e-3 * (1 - 50 / 800))
    assert "bf16" in one.evidence[1]


def test_tiny_products_are_not_slow_for_their_mode():
    assert found(ran(products("fp32", 4, 64), [2e-6] * 4)) == {}


def test_a_product_that_waits_for_memory_gains_only_down_to_its_bytes():
    tape = Tape()
    tape.product(tape.tensor(1, 16384), tape.tensor(16384, 16384))
    bytes_s = tape.program.ops[0].work.bytes / GPU.dram_bytes_per_s
    assert found(ran(tape.program, [bytes_s])) == {}
    assert found(ran(tape.program, [2 * bytes_s]))["B301"].device_seconds == pytest.approx(bytes_s)


# All of them


@st.composite
def steps(draw) -> Exam:
    """A few ops, each of what others made, run for any time on a machine with or without a cache."""
    tape, phase = Tape(), st.sampled_from(Phase)
    tensors = [tape.tensor(64, 64) for _ in range(2)]
    for _ in range(draw(st.integers(1, 8))):
        left, right = (draw(st.sampled_from(tensors)) for _ in range(2))
        name = draw(st.sampled_from(["mm", "mul", "cos", "_softmax"]))
        match name:
            case "mm":
                tensors.append(tape.product(left, right, phase=draw(phase)))
            case "mul":
                tensors.append(tape.pointwise(left, right, name=name, phase=draw(phase)))
            case _:
                tensors.append(tape.pointwise(left, name=name, phase=draw(phase)))
    seconds = [draw(st.floats(0, 1e-5)) for _ in tape.ops]
    sides = {"host_s": draw(st.none() | st.floats(0, 1e-4)), "serial": draw(st.booleans())}
    return ran(tape.program, seconds, step_s=1e-4, ceilings=draw(st.sampled_from([GPU, H200, CPU])), **sides)


HOST_SIDE = {"B101", "B103", "B104", "B207"}
"""Findings whose treatment takes something off the host."""


@given(steps())
def test_no_finding_breaks_or_promises_more_than_there_is(made):
    known = case(made)
    for one in find_all(known):
        assert one.code != "B501", one.evidence
        assert 0 <= (one.device_seconds or 0.0) <= known.busy_s + 1e-12
        host_s = (known.sides.host_s or 0.0) if one.code in HOST_SIDE else 0.0
        if one.seconds_at_stake is not None:
            assert 0 <= one.seconds_at_stake <= one.device_seconds + host_s + 1e-12


def test_findings_are_sorted_by_what_they_give_the_step():
    made = ran(chain(3), [10e-3] * 3, step_s=92.6e-3, host_s=90e-3, syncs=(Sync("sync", 5e-3, "a.py:1"),))
    assert [one.code for one in find_all(case(made))] == ["B101", "B102", "B201"]


def test_a_broken_finding_is_named_and_the_others_still_run():
    def breaks(_: Case) -> Stake:
        raise KeyError("tf32")

    broken = Rule("B999", "a broken one", "", "", "", "", "", breaks)
    ill = case(exam(kernel(0, 1.0), host_s=10.0))
    sound, reported = find_all(ill, [broken, *FINDINGS.values()])
    assert sound.code == "B101"
    assert (reported.code, reported.title) == ("B501", "B999 could not be looked for")
    assert reported.evidence == ("a broken one: KeyError: 'tf32'",)
    assert nothing_to_gain([reported], 10.0) is None


def test_an_exam_without_a_program_is_looked_at_for_what_can_be_seen():
    assert set(found(exam(kernel(0, 1.0), host_s=10.0, syncs=(Sync("sync", 1.0, None),)))) == {"B101", "B102"}


def test_every_finding_says_what_it_is_and_what_helps():
    assert len(FINDINGS) >= 25
    for code, rule in FINDINGS.items():
        assert rule.code == code
        assert rule.title
        assert rule.explanation.endswith(".")
        assert rule.unless.endswith(".")
        assert rule.reads
        assert rule.treatment
        assert rule.fix


def test_an_unknown_host_leaves_device_seconds():
    one = found(ran(chain(3), [1e-3] * 3, host_s=None))["B201"]
    assert (one.seconds_at_stake, one.device_seconds) == (None, pytest.approx(2e-3))


def gaining(step_s: float | None, device_s: float | None) -> Finding:
    return Finding("B000", "", step_s, device_s, (), "", "")


@pytest.mark.parametrize("pair", [(0.0, 0.0), (0.01, 0.01), (None, 0.01), (0.01, None)])
def test_less_than_the_doubt_of_the_step_is_nothing_to_gain(pair):
    assert nothing_to_gain([gaining(*pair)], 1.0).startswith("nothing to gain here")


@pytest.mark.parametrize("pair", [(0.5, 0.0), (0.0, 0.5), (None, 0.5), (None, None), (None, 0.0)])
def test_something_or_something_unknown_is_not_nothing(pair):
    assert nothing_to_gain([gaining(0.0, 0.0), gaining(*pair)], 1.0) is None


def test_a_healthy_step_has_nothing_to_gain():
    made = ran(products("bf16"), [0.2e-3] * 4)
    assert nothing_to_gain(find_all(case(made)), made.step_s) is not None
