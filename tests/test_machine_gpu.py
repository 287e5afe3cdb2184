"""On a real GPU: that every probe works and leaves no trace. How fast it is, is not asserted."""

import pytest
import torch

from gobrrr.dtypes import MATRIX_MODES
from gobrrr.machine.bench import Effort
from gobrrr.machine.identity import identify
from gobrrr.machine.measure import measure
from gobrrr.machine.probes import selected

pytestmark = pytest.mark.gpu

SMALL = Effort(
    window_s=1e-3,
    windows=3,
    warmup_s=0,
    patience_s=5e-3,
    rest_s=0,
    largest_matmul=1024,
    largest_matmul_s=1e-3,
    largest_buffer_bytes=256 << 20,
    retry_until_s=0,
)


@pytest.fixture(scope="module")
def full():
    return measure(identify("cuda"), selected(None), effort=SMALL)


def test_a_gpu_is_named_by_its_driver():
    machine = identify("cuda")
    assert machine.name == torch.cuda.get_device_name()
    assert machine.cache_bytes
    assert machine.multiprocessors


def test_no_probe_breaks(full):
    assert not [reason for reason in full.unmeasured.values() if reason.startswith("broke")]


@pytest.mark.skipif(
    torch.cuda.is_available() and torch.cuda.get_device_capability() < (8, 9), reason="older than fp8 products"
)
def test_a_recent_gpu_does_everything(full):
    assert full.unmeasured == {}
    assert full.matmul_flops_per_s.keys() == set(MATRIX_MODES)
    assert full.vector_flops_per_s.keys() == {"fp64", "fp32"}
    assert len(full.transcendental_cost) == 12
    assert full.shortest_kernel_class_s.keys() == {"elementwise", "reduction", "gemm", "attention"}
    assert None not in (full.graph_replay_s, full.h2d_bytes_per_s, full.d2h_bytes_per_s, full.cache_bytes_per_s)


def test_every_value_is_positive(full):
    assert all(full.value(key) > 0 for key in full.spread)


def test_memory_random_state_and_flags_are_as_before(full):
    """After a first run: torch itself keeps a workspace for each stream that ever multiplied."""
    torch.set_float32_matmul_precision("high")
    try:
        held, state = torch.cuda.memory_allocated(), torch.cuda.get_rng_state()
        measure(identify("cuda"), selected(["matmul", "dram", "shortest_kernel", "cost.random"]), effort=SMALL)
        assert torch.cuda.memory_allocated() == held
        assert torch.equal(torch.cuda.get_rng_state(), state)
        assert torch.get_float32_matmul_precision() == "high"
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    finally:
        torch.set_float32_matmul_precision("highest")
