"""Where a step's time went, what limits it, and how far it is from its floors: from made-up Exams."""

import json
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr import schema
from gobrrr.diagnose.diagnosis import diagnose, leading_regime, limiter
from gobrrr.exam import BatchTest, Exam
from gobrrr.timing.kernel import KernelKind
from gobrrr.work.op import OpClass, Phase
from gobrrr.work.program import Program
from test_exam import doing, exam, kernel, small_program
from test_floors import CPU
from test_fusion import H200
from test_residency import MiB, Tape

REGIMES = ["compute", "bandwidth", "overhead", "communication", "uncounted"]


def chain(ops: int, mib: int = 64) -> Program:
    tape = Tape()
    x = tape.tensor(mib * MiB // 4)
    for _ in range(ops):
        x = tape.pointwise(x, name="cos")
    return tape.program


def one_after_another(program: Program, seconds: list[float], step_s: float, **changes) -> Exam:
    """On a CPU, with what is left of the step as idle time."""
    starts = [sum(seconds[:place]) for place in range(len(seconds))]
    kernels = [doing(i, op, starts[i], seconds[i]) for i, op in enumerate(program.ops)]
    return exam(*kernels, step_s=step_s, program=program, **{"serial": True, "device": "cpu", **changes})


# A worked example


def test_a_chain_of_three_pointwise_ops_at_the_rate_of_memory_is_bandwidth_and_a_third_of_what_it_could_be():
    """Each op moves 2 × 64 MiB at 10 GB/s, and 1 % of the step is Python."""
    op_s = 2 * 64 * MiB / 10e9
    found = diagnose(one_after_another(chain(3), [op_s] * 3, 3 * op_s / 0.99))
    assert found.shares == pytest.approx(
        {"compute": 0, "bandwidth": 0.99, "overhead": 0.01, "communication": 0, "uncounted": 0}
    )
    assert found.fraction_of_floor == pytest.approx(0.33)
    assert (found.regime, found.limiter) == ("bandwidth", "device")
    assert found.attained_s == pytest.approx({"compute": 0, "bandwidth": 3 * op_s})
    assert found.inefficient_s == pytest.approx({"compute": 0, "bandwidth": 0}, abs=1e-12)
    assert found.as_run_floor_s == pytest.approx(3 * op_s)
    assert found.fused_floor_s == pytest.approx(op_s)
    assert found.compulsory_floor_s <= found.fused_floor_s
    (row,) = found.ops
    assert (row.calls, row.level, row.regime, row.cls) == (3, "dram", "bandwidth", "elementwise")
    assert row.bytes == found.bytes == 6 * 64 * MiB
    assert row.fused_from == ("aten::cos",)


def test_a_bandwidth_bound_op_that_is_slow_keeps_its_label_and_the_loss_stands_apart():
    op_s = 2 * 64 * MiB / 10e9
    found = diagnose(one_after_another(chain(1), [3 * op_s], 3 * op_s))
    assert found.seconds["bandwidth"] == pytest.approx(3 * op_s)
    assert found.attained_s["bandwidth"] == pytest.approx(op_s)
    assert found.inefficient_s["bandwidth"] == pytest.approx(2 * op_s)


def test_small_kernels_are_overhead():
    slow_start = replace(CPU, shortest_kernel_class_s={"gemm": 1.0, "elementwise": 1.0})
    found = diagnose(one_after_another(small_program(), [1.0, 1.0], 2.0, ceilings=slow_start))
    assert found.regime == "overhead"
    assert found.latency_s == pytest.approx(2.0 - found.as_run_floor_s)


# Laws


@st.composite
def exams(draw) -> Exam:
    program = draw(st.sampled_from([None, small_program(), chain(3, mib=1)]))
    times = st.floats(0, 10)

    def one():
        index = draw(st.none() | st.integers(0, len(program.ops) - 1)) if program else None
        start, seconds = draw(times), draw(times)
        kind = draw(st.sampled_from(KernelKind))
        if index is None:
            return kernel(start, seconds, kind=kind)
        return doing(index, program.ops[index], start, seconds, kind=kind)

    return exam(
        *(one() for _ in range(draw(st.integers(0, 6)))),
        program=program,
        step_s=draw(st.floats(1e-6, 30)),
        serial=draw(st.booleans()),
        host_s=draw(st.none() | times),
        gap_before_s=draw(st.none() | times),
        idle=draw(st.sampled_from([None, {"python": 1.0}, {"sync": 0.125, "dispatch": 0.25, "launch_latency": 0.625}])),
        ceilings=replace(CPU, shortest_kernel_class_s=draw(st.sampled_from([{}, {"gemm": 0.5, "elementwise": 1.0}]))),
    )


@settings(max_examples=60)
@given(exams())
def test_the_parts_add_up(made):
    found, step_s = diagnose(made), made.step_s
    near = {"rel": 1e-9, "abs": 1e-9}
    assert math.fsum(found.seconds.values()) == pytest.approx(step_s, **near)
    assert min(found.seconds.values()) >= -1e-9
    assert found.busy_s + found.idle_s == pytest.approx(step_s, **near)
    assert math.fsum(row.seconds for row in found.ops) == pytest.approx(found.busy_s, **near)
    assert math.fsum(row.seconds for row in found.classes.values()) == pytest.approx(found.busy_s, **near)
    for regime in ("compute", "bandwidth"):
        parts = found.attained_s[regime] + found.inefficient_s[regime]
        assert parts == pytest.approx(found.seconds[regime], **near)
    if found.idle_causes_s is not None:
        assert math.fsum(found.idle_causes_s.values()) == pytest.approx(found.idle_s, **near)
    assert found.modules.seconds == pytest.approx(found.busy_s, **near)
    assert found.latency_s + found.idle_s <= found.seconds["overhead"] + 1e-9
    if found.busy_s:
        assert math.fsum(found.coverage.values()) == pytest.approx(1)
        assert math.fsum(row.share for row in found.classes.values()) == pytest.approx(1)
    assert found.busy_scale >= 1
    if found.shares is not None:
        assert math.fsum(found.shares.values()) == pytest.approx(1)
    if made.serial:
        assert found.host_s + found.device_s == pytest.approx(step_s, **near)
    assert found.busy_s <= found.device_s + 1e-9 <= step_s + 2e-9


@settings(max_examples=20)
@given(exams())
def test_a_diagnosis_survives_its_json(made):
    found = diagnose(made)
    assert schema.from_document(type(found), json.loads(schema.dumps(found))) == found


@settings(max_examples=20)
@given(exams(), st.sampled_from([0.5, 2.0, 8.0]))
def test_shares_do_not_depend_on_the_unit_of_time(made, factor):
    """A machine so many times slower, with a step so many times longer, is diagnosed the same."""
    slower = replace(
        made,
        window_step_s=tuple(factor * step_s for step_s in made.window_step_s),
        kernels=tuple(replace(k, start_s=factor * k.start_s, seconds=factor * k.seconds) for k in made.kernels),
        ceilings=replace(
            made.ceilings,
            matmul_flops_per_s={mode: rate / factor for mode, rate in CPU.matmul_flops_per_s.items()},
            vector_flops_per_s={mode: rate / factor for mode, rate in CPU.vector_flops_per_s.items()},
            dram_bytes_per_s=CPU.dram_bytes_per_s / factor,
            cache_bytes_per_s=CPU.cache_bytes_per_s / factor,
            shortest_kernel_class_s={k: factor * v for k, v in made.ceilings.shortest_kernel_class_s.items()},
        ),
    )
    before, after = diagnose(made), diagnose(slower)
    assert (before.shares is None) == (after.shares is None)
    assert after.shares is None or dict(after.shares) == pytest.approx(before.shares)


# Regime


def shares(**parts: float) -> dict[str, float]:
    return {**dict.fromkeys(REGIMES, 0.0), **parts}


@pytest.mark.parametrize(
    ("parts", "regime"),
    [
        ({"compute": 0.6, "bandwidth": 0.4}, "compute"),
        ({"compute": 0.3, "bandwidth": 0.7}, "bandwidth"),
        ({"overhead": 0.5, "bandwidth": 0.3, "compute": 0.2}, "overhead"),
        ({"communication": 0.9, "compute": 0.1}, "communication"),
        ({"compute": 0.52, "bandwidth": 0.48}, "mixed"),
        ({"compute": 0.40, "overhead": 0.36, "bandwidth": 0.24}, "mixed"),
        ({"compute": 0.53, "bandwidth": 0.47}, "compute"),
        ({"compute": 0.71, "uncounted": 0.29}, "compute"),
        ({"compute": 0.69, "uncounted": 0.31}, "unknown"),
        ({"overhead": 0.36, "compute": 0.35, "uncounted": 0.29}, "mixed"),
    ],
)
def test_the_regime_is_the_largest_share_unless_two_lead_or_too_much_is_uncounted(parts, regime):
    assert leading_regime(shares(**parts)) == regime


# Limiter


@pytest.mark.parametrize(
    ("host_s", "device_s", "limits"),
    [
        (9.5, 4.0, "host"),
        (4.0, 9.5, "device"),
        (9.0, 9.0, "balanced"),
        (8.9, 8.9, "mixed"),
        (0.0, 0.0, "mixed"),
        (None, 9.5, "unknown"),
    ],
)
def test_the_limiter_is_the_side_that_fills_the_step(host_s, device_s, limits):
    assert limiter(host_s, device_s, 10.0) == limits


def test_queued_gaps_are_the_devices_and_gaps_that_wait_for_the_host_are_not():
    queued = exam(kernel(1, 5, launched_s=0.0), kernel(7, 3, launched_s=0.5), step_s=10.0, host_s=2.0)
    late = exam(kernel(1, 5, launched_s=0.0), kernel(7, 3, launched_s=6.5), step_s=10.0, host_s=9.5)
    assert (diagnose(queued).device_s, diagnose(queued).limiter) == (9.0, "device")
    assert (diagnose(late).device_s, diagnose(late).limiter) == (8.0, "host")


def test_the_gap_between_two_replays_is_the_devices_if_the_next_had_been_asked_for():
    """Two nodes of a graph, with a gap before and one between them; it is asked for while the last replay runs."""
    nodes = (kernel(3, 2, launched_s=0.0), kernel(6, 4, launched_s=0.0))
    found = diagnose(exam(*nodes, step_s=9.0, host_s=1.0, gap_before_s=2.0))
    assert (found.busy_s, found.device_s, found.limiter) == (6.0, 9.0, "device")


def test_on_a_cpu_what_no_op_holds_is_the_hosts():
    found = diagnose(one_after_another(small_program(), [1.0, 2.0], 10.0))
    assert (found.host_s, found.device_s, found.busy_s) == (7.0, 3.0, 3.0)


# Busy beyond the step


@pytest.mark.parametrize(
    ("busy_s", "warned", "shared"), [(10.0, False, True), (10.4, False, True), (11.0, True, True), (12.5, True, False)]
)
def test_kernels_that_do_not_fit_into_the_step_are_scaled_then_doubted_then_not_shared(busy_s, warned, shared):
    found = diagnose(exam(kernel(0, busy_s, kind=KernelKind.COMMUNICATION), step_s=10.0))
    assert found.busy_scale == pytest.approx(busy_s / 10)
    assert found.busy_s == pytest.approx(10.0)
    assert found.idle_s == pytest.approx(0.0)
    assert any("times as long as the step" in warning for warning in found.quality.warnings) is warned
    assert (found.shares is not None) is shared
    assert found.regime == ("communication" if shared else "unknown")


# Doubts that a reader of the JSON gets too


def doubts(made: Exam) -> str:
    return " | ".join(diagnose(made).quality.warnings)


def test_a_step_quicker_than_a_floor_is_doubted_once():
    program = small_program()
    slow = diagnose(one_after_another(program, [1.0, 2.0], 4.0))
    as_run_s, fused_s = (getattr(slow, name) for name in FLOORS)
    floors_s = [row.floor_s for row in sorted(slow.ops, key=lambda row: row.seconds)]
    for step_s, said in (
        (as_run_s, ""),
        (as_run_s / 1.1, "quicker than the floors of its kernels"),
        (fused_s / 1.1, "quicker than its floor;"),
    ):
        found = doubts(one_after_another(program, [step_s * one / as_run_s for one in floors_s], step_s))
        assert (found.startswith(said) and found.count("quicker") == 1) if said else not found


FLOORS = ("as_run_floor_s", "fused_floor_s")


def test_why_there_is_no_batch_test_is_a_doubt():
    assert "there is no batch test: too large" in doubts(exam(kernel(), batch_test=BatchTest((), None, "too large")))


# FLOPs


def products(**changes) -> Program:
    tape = Tape()
    for _ in range(2):
        tape.product(tape.tensor(256, 512, dtype="bf16"), tape.tensor(512, 128, dtype="bf16"))
    first, second = (replace(op, work=replace(op.work, flops_dense=op.work.matrix_flops)) for op in tape.ops)
    return replace(tape.program, ops=(first, replace(second, **changes)))


def test_mfu_is_against_the_datasheet_and_leaves_out_what_is_run_again():
    flops = 2 * 256 * 512 * 128
    made = one_after_another(products(), [1e-6, 1e-6], 1e-5, ceilings=H200, serial=False)
    assert diagnose(made).mfu == pytest.approx(2 * flops / (1e-5 * 989e12), rel=1e-3)
    assert diagnose(made).measured_peak_fraction == pytest.approx(2 * flops / (1e-5 * 773e12))
    again = diagnose(one_after_another(products(recomputed=True), [1e-6, 1e-6], 1e-5, ceilings=H200, serial=False))
    assert again.measured_peak_fraction == pytest.approx(flops / (1e-5 * 773e12))
    assert again.flops == 2 * flops


# The JSON that others rely on

KEYS = """schema_version machine step_s step_s_low step_s_high step_s_method step_profiled_s steps host_s device_s
busy_s busy_scale idle_s latency_s limiter seconds shares attained_s inefficient_s regime flops flops_dense bytes mfu
measured_peak_fraction compulsory_floor_s fused_floor_s as_run_floor_s fraction_of_floor gpu_util_percent
peak_memory_bytes coverage classes ops quality idle_causes_s modules gpu_clock_hz gpu_power_w
gpu_memory_bytes""".split()
OP_KEYS = "name cls module phase source calls seconds flops bytes floor_s level regime fused_from".split()


def as_json(made: Exam) -> dict:
    return json.loads(schema.dumps(diagnose(made)))


def test_the_json_has_every_key_of_the_contract():
    data = as_json(one_after_another(small_program(), [1.0, 2.0], 10.0))
    assert set(KEYS) <= set(data)
    assert set(data["machine"]) >= {"name", "ceilings_from"}
    assert set(data["seconds"]) == set(data["shares"]) == set(REGIMES)
    assert set(data["attained_s"]) == set(data["inefficient_s"]) == {"compute", "bandwidth"}
    assert set(data["coverage"]) == {"formula", "default", "unknown"}
    assert set(data["classes"]) == {"contraction", "elementwise"}
    assert all(set(row) >= {"flops", "bytes", "seconds", "share"} for row in data["classes"].values())
    assert all(set(row) >= set(OP_KEYS) for row in data["ops"])


def test_what_is_unknown_is_null_and_never_absent():
    data = as_json(exam(kernel(0, 3)))
    assert set(KEYS) <= set(data)
    unknown = """step_profiled_s host_s mfu measured_peak_fraction compulsory_floor_s fused_floor_s as_run_floor_s
    fraction_of_floor gpu_util_percent gpu_clock_hz gpu_power_w gpu_memory_bytes idle_causes_s
    peak_memory_bytes""".split()
    assert [key for key in unknown if data[key] is not None] == []
    (row,) = data["ops"]
    assert [row[key] for key in ("flops", "bytes", "floor_s", "level", "source")] == [None] * 5
    assert row["regime"] == "uncounted"


def test_without_a_program_a_fraction_of_the_peak_is_unknown_and_not_zero():
    made = one_after_another(products(), [1e-6, 1e-6], 1e-5, ceilings=H200, serial=False)
    found = diagnose(replace(made, program=None))
    assert (found.mfu, found.measured_peak_fraction, found.as_run_floor_s) == (None, None, None)


def test_ops_are_grouped_by_what_they_are_and_where_the_longest_first():
    op = small_program().ops[0]
    changes = {}, {"module": "Net.head"}, {}, {"phase": Phase.BACKWARD}, {"source": "a.py:3"}, {"inputs": ()}
    seconds = 1.0, 1.5, 1.0, 0.25, 0.5, 0.75
    rows = diagnose(
        exam(
            *(doing(i, op, 2 * i, took, fused_from=(0,)) for i, took in enumerate(seconds)),
            dispatched=tuple(replace(op, **change) for change in changes),
            step_s=12.0,
            program=small_program(),
        )
    ).ops
    assert [(row.calls, row.seconds) for row in rows] == [(2, 2.0), (1, 1.5), (1, 0.75), (1, 0.5), (1, 0.25)]
    assert {row.cls for row in rows} == {OpClass.CONTRACTION}
