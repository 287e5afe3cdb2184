"""How probes measure, on a fake clock."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.errors import Missing, UsageError
from gobrrr.machine.bench import (
    CPU_EFFORT,
    CUDA_EFFORT,
    Bench,
    Effort,
    Unmeasurable,
    calls_per_window,
    rates,
    repeated,
    side_by_side,
    slopes,
    warm_up,
)
from gobrrr.machine.identity import Machine
from gobrrr.machine.memory import buffer_bytes, matmul_size
from gobrrr.machine.probes import PROBES, pooled, scheduled, selected, settled
from gobrrr.machine.probes.latency import region_s
from gobrrr.machine.probes.matmul import best_size
from gobrrr.machine.probes.registry import Probe
from gobrrr.stats import Sample

EFFORT = Effort(
    window_s=1.0,
    windows=5,
    warmup_s=3.0,
    patience_s=100.0,
    rest_s=0,
    largest_matmul=2048,
    largest_matmul_s=0.05,
    largest_buffer_bytes=1 << 20,
    retry_until_s=60,
)
MACHINE = Machine(name="a CPU", kind="cpu", threads=2, torch="2.13", host="a CPU")
seconds = st.floats(1e-7, 10)


class FakeOp:
    """An op whose calls take the given seconds, the last of them for ever."""

    def __init__(self, *call_s: float) -> None:
        self.call_s = list(call_s)
        self.calls = 0
        self.windows: list[int] = []

    def __call__(self, calls: int) -> float:
        self.windows.append(calls)
        spent_s = 0.0
        for _ in range(calls):
            spent_s += self.call_s[min(self.calls, len(self.call_s) - 1)]
            self.calls += 1
        return spent_s


@given(call_s=seconds)
def test_a_window_is_as_long_as_asked_or_one_call(call_s):
    calls = calls_per_window(lambda calls: calls * call_s, 0.02)
    assert calls == 1 or 0.02 <= calls * call_s * (1 + 1e-9) <= 0.02 + 1.001 * call_s


def test_a_slow_first_call_does_not_make_windows_short():
    assert calls_per_window(FakeOp(5.0, 0.01), 1.0) == 100


def test_a_window_never_holds_more_calls_than_the_queue():
    op = FakeOp(1e-9)
    assert calls_per_window(op, 1.0, at_most=500) == 500
    assert max(op.windows) <= 1000


def test_warm_up_lasts_as_long_as_clocks_need_although_all_is_steady():
    op = FakeOp(1.0)
    warm_up(op, 1, EFFORT)
    assert op.calls == 3


def test_warm_up_goes_on_until_two_windows_agree():
    op = FakeOp(*(10.0 - n for n in range(8)), 1.0)
    warm_up(op, 1, EFFORT)
    assert op.calls == 10


def test_warm_up_ends_although_nothing_ever_agrees():
    op = FakeOp(*(1.0 + n for n in range(1000)))
    warm_up(op, 1, EFFORT)
    assert sum(range(1, op.calls + 1)) >= EFFORT.patience_s
    assert op.calls < 20


def test_only_windows_after_the_warm_up_count():
    sample = repeated(FakeOp(9.0, 8.0, 7.0, 6.0, 0.5), EFFORT)
    assert sample.values == (0.5,) * 5


@given(fixed_s=st.floats(0, 1e-3), unit_s=st.floats(1e-6, 1e-3), low=st.integers(1, 100), extra=st.integers(10, 1000))
def test_a_slope_forgets_what_both_pay_alike(fixed_s, unit_s, low, extra):
    short, long = fixed_s + low * unit_s, fixed_s + (low + extra) * unit_s
    found = slopes(lambda calls: calls * short, lambda calls: calls * long, extra, replace(EFFORT, window_s=1e-2))
    assert found.median == pytest.approx(unit_s, rel=1e-6)


def test_what_is_compared_is_measured_in_turn():
    order: list[str] = []

    def op(name):
        def timed(calls):
            order.append(name)
            return calls * 1.0

        return timed

    side_by_side([op("a"), op("b")], EFFORT)
    assert order[-10:] == ["a", "b"] * 5


def test_a_disturbed_window_does_not_reach_a_difference():
    """Every other window of the longer op is hit by something a hundred times as long."""
    hits = iter(range(10**6))
    long = lambda calls: calls * 3.0 + 100 * (next(hits) % 2)  # noqa: E731 (a fake clock in one line)
    found = slopes(lambda calls: calls * 1.0, long, 2.0, replace(EFFORT, windows=20))
    assert found.values == (1.0,) * 4


@given(amount=st.floats(1, 1e15), values=st.lists(seconds, min_size=1, max_size=9))
def test_a_rate_times_its_seconds_is_the_amount(amount, values):
    for rate, value in zip(rates(amount, Sample(tuple(values))).values, values, strict=True):
        assert rate * value == pytest.approx(amount)


def test_brief_effort_spends_less_time_and_looks_more_often():
    for effort in (CPU_EFFORT, CUDA_EFFORT):
        brief = effort.brief()
        assert brief.windows > effort.windows
        assert brief.windows * brief.window_s < effort.windows * effort.window_s


@given(dispatch=st.floats(1e-7, 1e-5), work=st.floats(1e-7, 1e-4), region=st.floats(0, 1e-5))
def test_the_parallel_region_is_what_neither_dispatch_nor_half_the_work_explains(dispatch, work, region):
    found = region_s(dispatch, dispatch + work, dispatch + work / 2 + region)
    assert found == pytest.approx(region, abs=1e-12)


def test_a_parallel_region_never_costs_less_than_nothing():
    assert region_s(1.0, 9.0, 2.0) == 0.0


def test_a_product_grows_to_the_largest_size_while_it_is_quick():
    assert best_size(lambda size: size**3 / 1e12, 2048, 0.05) == 2048


def test_a_product_stops_growing_once_it_takes_long_enough():
    tried = []

    def seconds_at(size):
        tried.append(size)
        return size**3 / 2e9

    assert best_size(seconds_at, 2048, 0.05) == 512
    assert tried == [256, 512]


def test_a_size_that_clearly_loses_is_not_taken():
    assert best_size(lambda size: {256: 0.024, 512: 0.5}[size], 2048, 0.05) == 256


def test_a_hopeless_product_is_given_up_after_one_look():
    with pytest.raises(Unmeasurable, match=r"takes 3\.0 s"):
        best_size(lambda _size: 3.0, 2048, 0.05)


@given(
    free=st.integers(1 << 20, 1 << 40),
    cache=st.integers(1 << 10, 1 << 30),
    largest=st.integers(1 << 12, 1 << 33),
    buffers=st.integers(1, 4),
)
def test_buffers_are_beyond_the_cache_and_within_half_of_what_is_free(free, cache, largest, buffers):
    if free // 2 // buffers < 4 * cache:
        with pytest.raises(Missing, match="free"):
            buffer_bytes(free, cache, largest, buffers)
        return
    size = buffer_bytes(free, cache, largest, buffers)
    assert 4 * cache - 4096 < size <= max(largest, 4 * cache)
    assert size * buffers <= free / 2


def test_products_shrink_to_what_is_free_and_no_further_than_makes_sense():
    assert matmul_size(None, 8192, 2) == 8192
    assert matmul_size(1 << 40, 8192, 2) == 8192
    assert matmul_size(512 << 20, 8192, 2) == 4096
    with pytest.raises(Missing):
        matmul_size(1 << 20, 8192, 2)


def test_a_group_stands_for_its_members():
    assert selected(["matmul"]) == [
        f"matmul.{mode}" for mode in ("fp64", "fp32", "tf32", "bf16", "fp16", "fp8", "int8")
    ]


def test_probes_run_in_one_order_however_they_are_asked_for():
    assert selected(["dram", "matmul.bf16", "cost.cos"]) == ["matmul.bf16", "cost.cos", "dram"]
    assert set(selected(None)) == set(PROBES)


def test_a_misspelt_probe_is_answered_with_the_right_one():
    with pytest.raises(UsageError, match=r"matmul\.bf16"):
        selected(["matmul.bf61"])


@pytest.fixture
def flaky(monkeypatch):
    """A probe that is calm from its third run on."""
    runs = iter([(1.0, 5.0, 9.0), (2.0, 5.0, 8.0), (5.0, 5.0, 5.0), (0.0, 0.0, 0.0)])
    monkeypatch.setitem(
        PROBES, "dram", Probe("dram", "memory", lambda _bench: {"dram_bytes_per_s": Sample(next(runs))})
    )
    return Bench(MACHINE, EFFORT)


def test_a_noisy_probe_is_run_again_and_the_calmest_run_counts(flaky):
    settled(flaky, "dram", lambda: 0.0)
    assert flaky.results["dram"]["dram_bytes_per_s"].values == (5.0, 5.0, 5.0)


def test_late_in_the_session_noise_is_taken_as_it_is(flaky):
    settled(flaky, "dram", lambda: 1e9)
    assert flaky.results["dram"]["dram_bytes_per_s"].values == (1.0, 5.0, 9.0)


def test_what_changes_within_seconds_is_looked_at_three_times_over_the_session():
    assert scheduled(["matmul.bf16", "dram", "dispatch"]) == [
        *("dispatch", "matmul.bf16"),
        *("dispatch", "dram"),
        "dispatch",
    ]


def test_values_of_a_strewn_probe_are_pooled(monkeypatch):
    looks = iter([(1.0, 2.0), (5.0,)])
    monkeypatch.setitem(PROBES, "look", Probe("look", "look", lambda _: {"x": Sample(next(looks))}, strewn=True))
    bench = Bench(MACHINE, EFFORT)
    pooled(bench, "look")
    pooled(bench, "look")
    assert bench.results["look"] == {"x": Sample((1.0, 2.0, 5.0))}
