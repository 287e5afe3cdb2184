import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr import schema
from gobrrr.errors import BadInput, Missing
from gobrrr.machine.ceilings import Ceilings, for_threads, merge
from gobrrr.machine.doubts import Doubt
from gobrrr.stats import Sample

CONTRACT = {
    "schema_version",
    "device",
    "threads",
    "matmul_flops_per_s",
    "vector_flops_per_s",
    "transcendental_cost",
    "dram_bytes_per_s",
    "cache_bytes_per_s",
    "cache_bytes",
    "shortest_kernel_s",
    "shortest_kernel_class_s",
    "dispatch_s",
    "dispatch_autograd_s",
    "graph_replay_s",
    "h2d_bytes_per_s",
    "d2h_bytes_per_s",
    "ridge_flops_per_byte",
    "measured_at",
    "spread",
}

BARE = Ceilings(device="NVIDIA H200", kind="cuda", threads=16, measured_at="2026-11-15T03:00:00+00:00")
rates = st.floats(1e6, 1e16)


def test_json_has_every_key_of_the_contract_even_when_nothing_was_measured():
    data = schema.document_data(BARE)
    assert data.keys() >= CONTRACT
    assert data["dram_bytes_per_s"] is None
    assert data["matmul_flops_per_s"] == {}


def test_unknown_is_never_zero():
    assert 0 not in schema.document_data(BARE).values()


@given(matmul=rates, dram=rates)
def test_ridge_is_where_arithmetic_and_memory_take_equally_long(matmul, dram):
    ceilings = replace(BARE, matmul_flops_per_s={"bf16": matmul}, dram_bytes_per_s=dram)
    bytes_moved = 1e9
    flops = bytes_moved * ceilings.ridge_flops_per_byte["bf16"]
    assert flops / matmul == pytest.approx(bytes_moved / dram)


def test_ridge_goes_into_the_json_and_is_not_read_back():
    ceilings = replace(BARE, matmul_flops_per_s={"bf16": 763e12}, dram_bytes_per_s=4.4e12)
    data = json.loads(schema.dumps(ceilings))
    assert data["ridge_flops_per_byte"] == {"bf16": pytest.approx(173.4, abs=0.1)}
    data["ridge_flops_per_byte"] = {"bf16": 1}
    assert schema.from_document(Ceilings, data) == ceilings


def test_no_ridge_without_a_bandwidth():
    assert replace(BARE, matmul_flops_per_s={"bf16": 763e12}).ridge_flops_per_byte == {}


def test_a_document_survives_its_file(tmp_path):
    ceilings = replace(BARE, dram_bytes_per_s=4.4e12, spread={"dram_bytes_per_s": 0.01}, doubts=(Doubt("hot", "wait"),))
    schema.write(ceilings, tmp_path / "c.json")
    assert schema.read(Ceilings, tmp_path / "c.json") == ceilings


def test_a_newer_version_is_refused():
    with pytest.raises(BadInput, match="newer"):
        schema.from_document(Ceilings, {**schema.document_data(BARE), "schema_version": 99})


def test_filled_puts_medians_and_spreads_under_their_keys():
    samples = {"matmul_flops_per_s.bf16": Sample((1.0, 2.0, 3.0)), "dispatch_s": Sample((7e-6,))}
    ceilings = replace(BARE, matmul_flops_per_s={"fp32": 5.0}).filled(samples)
    assert ceilings.matmul_flops_per_s == {"fp32": 5.0, "bf16": 2.0}
    assert ceilings.value("matmul_flops_per_s.bf16") == 2.0
    assert ceilings.dispatch_s == 7e-6
    assert ceilings.spread == {"matmul_flops_per_s.bf16": 0.5, "dispatch_s": 0.0}
    assert ceilings.samples == {"matmul_flops_per_s.bf16": 3, "dispatch_s": 1}


def test_merge_keeps_what_only_one_has_and_prefers_the_newer():
    older = replace(BARE, dram_bytes_per_s=1.0, matmul_flops_per_s={"fp32": 1.0, "bf16": 1.0}, probed={"dram": "then"})
    newer = replace(
        BARE, cache_bytes_per_s=2.0, matmul_flops_per_s={"bf16": 2.0}, measured_at="2026-11-16T00:00:00+00:00"
    )
    merged = merge(older, newer)
    assert merged.dram_bytes_per_s == 1.0
    assert merged.cache_bytes_per_s == 2.0
    assert merged.matmul_flops_per_s == {"fp32": 1.0, "bf16": 2.0}
    assert merged.probed == {"dram": "then"}
    assert merged.measured_at == older.measured_at


def test_merge_keeps_the_doubts_of_both_once():
    hot, busy = Doubt("hot", "cool it"), Doubt("busy", "wait")
    merged = merge(replace(BARE, doubts=(hot, busy)), replace(BARE, doubts=(busy,)))
    assert merged.doubts == (hot, busy)


def test_a_probe_that_works_now_is_no_longer_unmeasured():
    older = replace(BARE, unmeasured={"vector.fp32": "no Triton", "matmul.fp8": "too old"})
    newer = replace(BARE, probed={"vector.fp32": "now"}, vector_flops_per_s={"fp32": 6e13})
    assert merge(older, newer).unmeasured == {"matmul.fp8": "too old"}


def test_machines_are_not_merged_with_one_another():
    with pytest.raises(AssertionError):
        merge(replace(BARE, fingerprint="a"), replace(BARE, fingerprint="b"))


@given(before=rates, now=rates, cost=st.floats(1, 1000))
def test_a_new_vector_rate_leaves_the_seconds_of_a_function_alone(before, now, cost):
    older = replace(BARE, vector_flops_per_s={"fp32": before}, transcendental_cost={"cos": cost})
    merged = merge(older, replace(BARE, vector_flops_per_s={"fp32": now}))
    seconds = [c.transcendental_cost["cos"] * 2 / c.vector_flops_per_s["fp32"] for c in (older, merged)]
    assert seconds[0] == pytest.approx(seconds[1])


def test_cpu_ceilings_are_refused_for_another_number_of_threads():
    ceilings = replace(BARE, kind="cpu", threads=2)
    assert for_threads(ceilings, 2) is ceilings
    with pytest.raises(Missing, match="2 threads and the run has 8"):
        for_threads(ceilings, 8)


def test_gpu_ceilings_hold_for_any_number_of_threads():
    assert for_threads(BARE, 3) is BARE


def test_age_counts_from_the_measurement_and_never_below_zero():
    assert BARE.age_s(datetime(2026, 11, 15, 4, tzinfo=UTC)) == 3600
    assert BARE.age_s(datetime(2026, 11, 15, 2, tzinfo=UTC)) == 0
