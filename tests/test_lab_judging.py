"""From points to verdicts: pure functions, judged on curves whose answer is known."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.diagnosis import ClassRow
from gobrrr.lab import batch, bert, fusion, intensity, overhead, peaks
from gobrrr.lab.claim import CLAIMED, Check, Claim, Verdict, near, share, verdict
from gobrrr.lab.knee import knee
from gobrrr.machine import datasheets
from gobrrr.machine.ceilings import Ceilings
from gobrrr.report import curve
from test_floors import CPU

H200 = Ceilings(
    device="NVIDIA H200",
    kind="cuda",
    threads=16,
    measured_at="2026-11-15T00:00:00+00:00",
    matmul_flops_per_s={"fp32": 49.45e12, "bf16": 792.3e12, "fp8": 1504e12},
    vector_flops_per_s={"fp32": 64.35e12},
    dram_bytes_per_s=4.438e12,
    dispatch_s=3.6e-6,
    shortest_kernel_class_s={"elementwise": 1.038e-6},
)


RATES = intensity.Rates.of(H200)


def verdicts(claims: tuple[Claim, ...]) -> dict[str, Verdict]:
    assert all(claim.claimed == CLAIMED[claim.id] for claim in claims)
    return {claim.id: claim.verdict for claim in claims}


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ((1, 2), Verdict.HOLDS),
        ((1, 5), Verdict.IN_PART),
        ((5, 5), Verdict.FAILS),
        ((1, None), Verdict.UNTESTABLE),
        ((), Verdict.UNTESTABLE),
    ],
)
def test_the_verdict_is_decided_by_the_checks_alone(values, expected):
    assert verdict(Check("what", value, low=0, high=3) for value in values) is expected


def test_near_is_a_factor_both_ways_and_unknown_with_either_side():
    assert [near("", value, 10, 2).passes for value in (4.9, 5, 20, 20.1, None)] == [False, True, True, False, None]
    assert near("", 5, None, 2).passes is None


def test_a_share_of_nothing_is_unknown():
    assert share("", []).passes is None
    assert share("", [True, False]).passes is False


@given(
    floor_s=st.floats(1e-6, 1),
    slope_s=st.floats(1e-9, 1e-3),
    place=st.integers(1, 8),
    between=st.floats(1.01, 1.99),
)
def test_the_knee_of_a_bent_line_is_where_it_bends(floor_s, slope_s, place, between):
    bend = 2**place * between
    x = [2**power for power in range(11)]
    seconds = [max(slope_s * bend, slope_s * one) for one in x]
    assert knee(x, seconds) == pytest.approx(bend, rel=1e-6)
    assert knee(x, [floor_s * t for t in seconds]) == pytest.approx(bend, rel=1e-6)


def test_a_line_without_a_bend_has_no_knee():
    assert knee([1, 2, 4, 8], [3, 3, 3, 3]) is None
    assert knee([1, 2, 4, 8], [3, 6, 12, 24]) is None


def test_the_knee_of_a_recorded_sweep_is_near_the_measured_ridge():
    """An H200's compiled multiply-adds over 2²⁶ fp32: one slot an operation, as a multiplication is."""
    repeats = [1, 4, 16, 32, 64, 128, 256]
    milliseconds = [0.190, 0.165, 0.167, 0.165, 0.221, 0.329, 0.580]
    assert 1 / 1.5 < knee(repeats, milliseconds) / RATES.ridge < 1.5


def sweep(ceilings: Ceilings, *, reached: float = 1.0) -> list[intensity.Repeat]:
    """On a machine that reaches this part of its vector rate, all of its bandwidth, and is diagnosed by its floors."""
    elements, points = 1 << 20, []
    for repeats in (1, 4, 16, 32, 64, 128, 256, 512):
        flops, nbytes = repeats * elements, 8 * elements
        compute_s = flops / (ceilings.vector_flops_per_s["fp32"] / 2)
        moving_s = nbytes / ceilings.dram_bytes_per_s
        seconds = max(compute_s / reached, moving_s)
        regime = "compute" if compute_s > moving_s else "bandwidth"
        points.append(
            intensity.Repeat(repeats, seconds, flops, nbytes, flops / seconds, nbytes / seconds, flops / nbytes, regime)
        )
    return points


def test_an_ideal_machine_confirms_the_sweep():
    """But for the rule of thumb: at 32 operations it is at 55 % of its peak, and its bytes still take longer."""
    judged = verdicts(intensity.judge(sweep(H200), RATES))
    assert judged == {"c07": Verdict.HOLDS, "c08": Verdict.HOLDS, "c17": Verdict.IN_PART}


def test_a_machine_that_cannot_fill_its_units_bends_too_early():
    """At 30 % of the peak nothing reaches half of it."""
    judged = {claim.id: claim for claim in intensity.judge(sweep(H200, reached=0.3), RATES)}
    assert judged["c08"].checks[0].passes is False
    assert judged["c17"].verdict is Verdict.UNTESTABLE
    assert "does not fill the units" in judged["c17"].why


def test_the_regime_changes_once_and_for_all():
    points = sweep(H200)
    assert intensity.regime_change(points) == pytest.approx((32 * 64) ** 0.5)
    assert intensity.regime_change(points[:4]) is None
    assert intensity.regime_change(points[4:]) is None


def test_an_accelerator_has_matrix_units_and_a_cpu_has_none():
    rates = peaks.rates(H200, datasheets.find("NVIDIA H200"))
    assert {one.name: one.of_datasheet for one in rates}["bf16"] == pytest.approx(0.8, abs=0.01)
    assert set(verdicts(peaks.judge(rates)).values()) == {Verdict.HOLDS}
    cpu = replace(CPU, matmul_flops_per_s={"fp32": 50e9, "bf16": 5e9})
    judged = peaks.judge(peaks.rates(cpu, None))
    assert set(verdicts(judged).values()) == {Verdict.FAILS}
    assert "the same units do both" in judged[0].why


def ways(**seconds: float) -> list[fusion.Way]:
    """An H200's, and what a test says otherwise."""
    usual = {
        "one cos": (0.515, 8), "cos of cos": (1.024, 16), "cos of cos, fused": (0.585, 8),
        "relu": (0.50, 8), "gelu": (0.52, 8), "four ops": (2.3, 36), "four ops, fused": (0.8, 12),
        "cast": (0.37, 6), "scale": (0.25, 4), "cast, scale, cast": (1.25, 20),
        "scale, compiled": (0.25, 4), "cast, scale, cast, fused": (0.26, 4),
        "product": (1.0, 1), "product + bias + relu": (1.3, 3), "with bias + relu": (1.1, 2), "all, compiled": (1.1, 1),
    }  # fmt: skip
    group = {"relu": "activation", "gelu": "activation"}
    return [
        fusion.Way(
            group.get(name, "other"),
            name,
            1e-3 * seconds.get(name.replace(" ", "_").replace(",", ""), taken),
            nbytes * 2**28,
            1e-3 * taken,
            "bandwidth",
        )
        for name, (taken, nbytes) in usual.items()
    ]


def test_fusion_saves_what_memory_takes():
    judged = verdicts(fusion.judge(ways(), 4.438e12, 0.0))
    assert judged == {
        "c09": Verdict.HOLDS,
        "c10": Verdict.HOLDS,
        "c16": Verdict.HOLDS,
        "c23": Verdict.IN_PART,  # a compiled cast is no trip
    }


def test_a_compute_bound_cos_gains_less():
    slow = [
        replace(way, regime="compute", floor_s=0.9e-3) if way.name == "cos of cos, fused" else way
        for way in ways(cos_of_cos_fused=0.95)
    ]
    claim = fusion.judge(slow, 4.438e12, 0.0)[0]
    assert claim.verdict is Verdict.IN_PART
    assert "the fused pair is compute-bound here: its arithmetic takes 900 µs, its bytes 484 µs" in claim.why


def test_fusion_that_changes_a_result_is_not_what_was_claimed():
    assert verdicts(fusion.judge(ways(), 4.438e12, 1e-3))["c16"] is Verdict.IN_PART


def op_sizes(host_s: float) -> list[overhead.OpSize]:
    """Asynchronous: the slower of host and device decides."""
    points = []
    for elements in (1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26):
        device_s = max(1e-6, 12 * elements / 4.4e12)
        seconds = max(host_s, device_s)
        limiter = "host" if host_s > device_s else "device"
        points.append(
            overhead.OpSize(elements, seconds, "bandwidth", limiter, host_s, device_s, 1 - device_s / seconds)
        )
    return points


def test_a_host_that_stays_ahead_is_hidden_and_a_graph_needs_none():
    ways_to_start = [overhead.Started("eager", 7e-6), overhead.Started("CUDA graph", 1.1e-6)]
    judged = verdicts(overhead.judge(32e6, op_sizes(7e-6), ways_to_start, H200))
    assert judged == {"c11": Verdict.HOLDS, "c12": Verdict.HOLDS, "c25": Verdict.HOLDS}


def test_a_host_that_waits_after_every_op_hides_nothing():
    waiting = [replace(size, seconds=size.host_s + size.device_s) for size in op_sizes(7e-6)]
    assert verdicts(overhead.judge(32e6, waiting, [overhead.Started("eager", 7e-6)], H200))["c12"] is Verdict.IN_PART


def batches(model: str, regimes: dict[int, tuple[float, str]]) -> list[batch.Batch]:
    return [batch.Batch(model, rows, seconds, rows, regime, None) for rows, (seconds, regime) in regimes.items()]


SMALL = {1: (1.0, "overhead"), 8: (1.1, "overhead"), 64: (4.0, "compute")}
LARGE = {1: (1.0, "bandwidth"), 16: (1.1, "bandwidth"), 64: (1.2, "bandwidth"), 256: (2.0, "compute")}


def test_a_flat_step_is_overhead_or_the_footnotes_case():
    points = [*batches(batch.SMALL, SMALL), *batches(batch.LARGE, LARGE)]
    assert verdicts(batch.judge(points, 180)) == {"c13": Verdict.HOLDS, "c21": Verdict.HOLDS}
    assert [round(growth.per_doubling, 3) for growth in batch.growths(batches("m", {1: (1, ""), 8: (8, "")}))] == [2.0]


def test_a_flat_step_of_a_small_model_that_is_not_overhead_refutes():
    points = [*batches(batch.SMALL, {1: (1.0, "compute"), 8: (1.0, "compute")}), *batches(batch.LARGE, LARGE)]
    assert verdicts(batch.judge(points, 180))["c13"] is Verdict.IN_PART


@pytest.mark.parametrize(("half", "dtype", "item"), [("bfloat16", "bf16", 2), ("float32", "fp32", 4)])
def test_at_the_ridge_batch_products_and_bytes_take_equally_long(half, dtype, item):
    width = 8192
    rows = batch.ridge_batch(width, half, H200)
    computing_s = 2 * rows * width**2 / H200.matmul_flops_per_s[dtype]
    moving_s = item * (width**2 + 2 * rows * width) / H200.dram_bytes_per_s
    assert computing_s == pytest.approx(moving_s)
    assert batch.ridge_batch(100, "bfloat16", H200) is None  # too narrow: never compute-bound


def test_the_papers_own_table_confirms_the_paper():
    """250 and 700 are rounded from its shares of FLOPs and time."""
    rows = {
        cls: ClassRow(1e12 * bert.PAPER_FLOPS[cls], 0, bert.PAPER_TIME[cls], bert.PAPER_TIME[cls])
        for cls in bert.CLASSES
    }
    judged = bert.judge(bert.class_points(bert.LAYER, rows))
    assert set(verdicts(judged).values()) == {Verdict.HOLDS}
    assert judged[2].measured == "normalization 245x, elementwise 736x fewer FLOP/s"


def test_a_curve_has_its_points_its_ends_and_its_marks():
    lines = curve.draw([(1, 1), (10, 1), (100, 10)], str, str, {"knee": 10})
    assert sum(line.count("●") for line in lines) == 3
    assert lines[0].lstrip().startswith("10 │")
    assert lines[0].endswith("●")
    assert lines[curve.HEIGHT - 1].lstrip().startswith("1 │●")
    assert lines[-1].strip() == "knee 10"
    assert curve.draw([(1, 1)], str, str) == []
