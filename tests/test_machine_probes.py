"""Every probe, run on a few numbers: the values mean nothing, the keys and the manners do."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from gobrrr import schema
from gobrrr.errors import Missing
from gobrrr.machine import measure as measure_module
from gobrrr.machine.bench import Bench, Effort, Unmeasurable
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.identity import identify
from gobrrr.machine.measure import measure
from gobrrr.machine.probes import PROBES, selected, transcendental
from gobrrr.machine.probes.registry import Probe, results_of
from gobrrr.stats import Sample

TINY = Effort(
    window_s=1e-4,
    windows=3,
    warmup_s=0,
    patience_s=1e-3,
    rest_s=0,
    largest_matmul=128,
    largest_matmul_s=1e-4,
    largest_buffer_bytes=1 << 16,
    retry_until_s=0,
)
MACHINE = replace(identify("cpu"), cache_bytes=1 << 15)
NOT_ON_CPU = {"matmul.tf32", "matmul.fp8", "graph_replay", "host_copies"}


@pytest.fixture(scope="module")
def full() -> Ceilings:
    return measure(MACHINE, selected(None), effort=TINY)


def test_a_full_run_tries_every_probe_and_says_why_one_gave_nothing(full):
    assert full.probed.keys() == PROBES.keys()
    busy = {name for name in full.unmeasured if name.startswith("cost.")}  # with so few runs, a function or other
    assert full.unmeasured.keys() - busy == NOT_ON_CPU


def test_every_measured_rate_is_positive_and_unknown_ones_are_absent(full):
    assert full.matmul_flops_per_s.keys() == {"fp64", "fp32", "bf16", "fp16", "int8"}
    assert min(full.matmul_flops_per_s.values()) > 0
    assert full.graph_replay_s is full.h2d_bytes_per_s is full.d2h_bytes_per_s is None
    assert full.dispatch_s > 0
    assert full.cache_bytes_per_s > 0
    assert min(full.transcendental_cost.values()) > 0


def test_a_function_that_takes_less_than_no_time_has_no_cost(monkeypatch):
    monkeypatch.setattr(transcendental, "_multiply_add_rate", lambda _bench: 1e9)
    monkeypatch.setattr(transcendental, "_on_cpu", lambda _bench, _member: Sample((-1e-9, -2e-9)))
    with pytest.raises(Unmeasurable, match="busy"):
        transcendental.cost(SimpleNamespace(kind="cpu"), "div")


def test_bandwidth_is_the_best_pattern_and_all_are_kept(full):
    assert full.dram_pattern_bytes_per_s.keys() == {"read", "copy", "add"}
    assert full.dram_bytes_per_s == max(full.dram_pattern_bytes_per_s.values())


def test_the_shortest_kernel_is_the_least_of_its_classes(full):
    assert full.shortest_kernel_class_s.keys() == {"elementwise", "reduction", "gemm", "attention"}
    assert full.shortest_kernel_s == min(full.shortest_kernel_class_s.values())


def test_on_a_cpu_vector_units_are_what_products_run_on(full):
    assert full.vector_flops_per_s == {dtype: full.matmul_flops_per_s[dtype] for dtype in ("fp64", "fp32")}


def test_every_value_has_its_spread_and_count(full):
    assert full.spread.keys() == full.samples.keys()
    for key in full.spread:
        assert full.value(key) is not None


def test_a_full_run_is_valid_json(full):
    data = json.loads(schema.dumps(full))
    assert schema.from_document(Ceilings, data) == full
    assert data["ridge_flops_per_byte"].keys() == full.matmul_flops_per_s.keys()


def test_measuring_draws_no_random_number_and_changes_no_flag():
    state, precision = torch.get_rng_state(), torch.get_float32_matmul_precision()
    threads, dtype = torch.get_num_threads(), torch.get_default_dtype()
    measure(MACHINE, selected(["matmul.fp32", "cost.random", "dispatch"]), effort=TINY)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.is_grad_enabled()
    assert (torch.get_float32_matmul_precision(), torch.get_num_threads()) == (precision, threads)
    assert torch.get_default_dtype() is dtype


def test_probing_works_whatever_the_default_dtype():
    torch.set_default_dtype(torch.float64)
    try:
        found = measure(MACHINE, selected(["matmul.fp32", "cost.cos", "dram", "cache"]), effort=TINY)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.unmeasured == {}


def test_only_what_was_asked_for_is_probed():
    found = measure(MACHINE, ["dispatch"], effort=TINY)
    assert found.probed.keys() == {"dispatch"}
    assert found.dram_bytes_per_s is None


def test_what_a_probe_builds_on_is_measured_and_kept_too():
    found = measure(MACHINE, ["cost.cos"], effort=TINY)
    assert found.probed.keys() == {"cost.cos", "vector.fp32", "matmul.fp32"}


def test_what_is_known_is_not_measured_again():
    known = Ceilings(device="", kind="cpu", threads=2, measured_at="", vector_flops_per_s={"fp32": 2e11})
    found = measure(MACHINE, ["cost.cos"], known=known, effort=TINY)
    assert found.probed.keys() == {"cost.cos"}


def test_without_threads_there_is_no_parallel_region():
    found = measure(replace(MACHINE, threads=1), ["shortest_kernel"], effort=TINY)
    assert found.shortest_kernel_s == 0.0


def test_a_probe_that_breaks_is_reported_and_the_others_still_count(monkeypatch):
    def broken(_bench):
        raise TypeError("no such kernel\nand a long trace")

    monkeypatch.setitem(PROBES, "dram", Probe("dram", "memory", broken))
    found = measure(MACHINE, ["dram", "dispatch"], effort=TINY)
    assert found.unmeasured == {"dram": "broke: TypeError: no such kernel"}
    assert found.dispatch_s > 0


def test_too_little_memory_is_one_sentence():
    with pytest.raises(Missing, match=r"needs .* free and there are"):
        measure(replace(MACHINE, cache_bytes=1 << 50), ["dram"], effort=TINY)


def test_running_out_of_memory_is_one_sentence_too(monkeypatch):
    def greedy(_bench):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate…")

    monkeypatch.setitem(PROBES, "dram", Probe("dram", "memory", greedy))
    with pytest.raises(Missing, match="ran out of memory while measuring dram"):
        measure(MACHINE, ["dram"], effort=TINY)


def test_progress_names_each_probe_before_it_runs(monkeypatch):
    told = []
    monkeypatch.setattr(measure_module, "settled", lambda _bench, name, _now: told.append(name))
    measure(MACHINE, ["matmul.bf16", "dram"], effort=TINY, progress=lambda *step: told.append(step))
    assert told == [(1, 2, "bf16 matmul"), "matmul.bf16", (2, 2, "memory bandwidth"), "dram"]


def test_a_probe_runs_once_a_session(monkeypatch):
    runs = []
    monkeypatch.setitem(PROBES, "dram", Probe("dram", "memory", lambda _bench: runs.append(1) or {"x": Sample((1.0,))}))
    bench = Bench(MACHINE, TINY)
    assert results_of(bench, "dram") is results_of(bench, "dram")
    assert runs == [1]


def test_no_probe_needs_triton_on_a_cpu(full):
    assert not any("Triton" in reason for reason in full.unmeasured.values())
