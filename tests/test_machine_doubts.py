"""Which states of a machine cast doubt on a measurement: pure decisions over made-up snapshots."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.machine import gpu_state as gpu_state_module
from gobrrr.machine.doubts import (
    CpuState,
    GpuState,
    cpu_doubts,
    excess_doubts,
    gpu_doubts,
    host_doubts,
    noise_doubts,
    title,
)
from gobrrr.machine.gpu_state import gpu_state, parsed_smi

FINE = GpuState(
    throttle_bits=0x4,
    power_limit_w=700,
    power_default_w=700,
    temperature_c=60,
    slowdown_c=90,
    clock_hz=1.5e9,
    highest_clock_hz=1.98e9,
    processes=1,
)
QUIET = CpuState(cores=4, threads=4, at_s=10, busy_s=100, stolen_s=0, own_s=50)
LATER = replace(QUIET, at_s=20, busy_s=140, own_s=90)


def what(doubts):
    return " / ".join(doubt.what for doubt in doubts)


def test_a_gpu_at_its_power_limit_is_as_it_should_be():
    assert gpu_doubts([FINE, FINE]) == []


def test_an_unknown_state_is_no_doubt():
    assert gpu_doubts([GpuState()]) == []
    assert gpu_doubts([]) == []


@pytest.mark.parametrize(
    ("bits", "word"), [(0x20, "heat"), (0x40, "heat"), (0x80, "power brake"), (0x8, "hardware"), (0x2, "clocks")]
)
def test_a_throttle_at_any_moment_is_a_doubt(bits, word):
    doubts = gpu_doubts([FINE, replace(FINE, throttle_bits=0x4 | bits), FINE])
    assert len(doubts) == 1
    assert word in doubts[0].what
    assert doubts[0].remedy


def test_a_lowered_power_limit_is_a_doubt_with_the_command_that_restores_it():
    (doubt,) = gpu_doubts([replace(FINE, power_limit_w=330)])
    assert "330 W" in doubt.what
    assert "nvidia-smi -pl 700" in doubt.remedy


def test_near_its_slowdown_temperature_it_is_too_hot():
    assert "88 °C" in what(gpu_doubts([replace(FINE, temperature_c=88)]))
    assert gpu_doubts([replace(FINE, temperature_c=80)]) == []


def test_a_low_clock_is_a_doubt_unless_power_or_idleness_explains_it():
    slow = replace(FINE, clock_hz=0.9e9)
    assert gpu_doubts([slow]) == []
    assert gpu_doubts([replace(slow, throttle_bits=0x1)]) == []
    assert "900 MHz of 1980" in what(gpu_doubts([replace(slow, throttle_bits=0)]))


def test_one_process_on_the_gpu_is_us_and_the_others_are_not():
    assert gpu_doubts([replace(FINE, processes=0)]) == []
    assert "another process" in what(gpu_doubts([replace(FINE, processes=2)]))
    assert "3 other processes" in what(gpu_doubts([FINE, replace(FINE, processes=4)]))


def test_a_host_of_our_own_is_no_doubt():
    assert cpu_doubts(QUIET, LATER) == []


def test_programs_that_take_our_cores_are_a_doubt():
    assert "1.0 of 4 cores" in what(cpu_doubts(QUIET, replace(LATER, busy_s=150)))


def test_programs_on_other_cores_are_none():
    before, after = replace(QUIET, cores=64), replace(LATER, cores=64, busy_s=140 + 400)
    assert "cores busy" not in what(cpu_doubts(before, after))


def test_a_hypervisor_that_takes_our_cores_is_a_doubt():
    assert "hypervisor" in what(cpu_doubts(QUIET, replace(LATER, stolen_s=5)))


def test_a_quota_below_the_threads_is_a_doubt_that_says_how_many_fit():
    (doubt,) = cpu_doubts(QUIET, replace(LATER, quota_cores=2.5))
    assert "OMP_NUM_THREADS=2" in doubt.remedy


def test_idle_cores_are_a_doubt():
    (doubt,) = cpu_doubts(replace(QUIET, cores=8), replace(LATER, cores=8))
    assert "4 of 8 cores" in doubt.what


def test_cores_beyond_the_quota_are_not_missed():
    assert cpu_doubts(replace(QUIET, cores=64), replace(LATER, cores=64, quota_cores=4.0)) == []


def test_a_gpu_needs_no_more_than_one_core_of_its_host():
    before, after = (replace(state, threads=1, cores=16) for state in (QUIET, LATER))
    assert host_doubts(before, after) == []


def test_a_host_that_tells_nothing_raises_no_doubt():
    silent = CpuState(cores=4, threads=4)
    assert cpu_doubts(silent, silent) == []


def test_noise_is_one_doubt_that_names_the_worst():
    (doubt,) = noise_doubts({"dispatch_s": 0.2, "matmul_flops_per_s.bf16": 0.5, "dram_bytes_per_s": 0.01})
    assert "2 values" in doubt.what
    assert "the bf16 matmul rate by ± 25 %" in doubt.what


def test_calm_values_raise_no_doubt():
    assert noise_doubts({"dispatch_s": 0.1, "dram_bytes_per_s": 0.0}) == []


@given(sheet=st.floats(1e9, 1e16), ratio=st.floats(0.01, 3))
def test_beyond_105_percent_of_the_datasheet_is_flagged_and_below_is_not(sheet, ratio):
    flagged = bool(excess_doubts({"dram_bytes_per_s": sheet * ratio}, {"dram_bytes_per_s": sheet}))
    if abs(ratio - 1.05) > 1e-9:
        assert flagged == (ratio > 1.05)


def test_what_no_datasheet_tells_is_not_compared():
    assert excess_doubts({"dispatch_s": 1.0}, {}) == []


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("matmul_flops_per_s.bf16", "the bf16 matmul rate"),
        ("transcendental_cost.cos", "the cost of cos"),
        ("dispatch_autograd_s", "dispatch autograd"),
        ("cache_bytes_per_s", "cache bandwidth"),
        ("dram_pattern_bytes_per_s.read", "memory bandwidth (read)"),
    ],
)
def test_keys_read_as_words(key, expected):
    assert title(key) == expected


def test_a_line_of_nvidia_smi_is_a_state():
    state = parsed_smi("0x0000000000000004, 700.00, 700.00, 45, 1980, 1980", "123\n456")
    assert state == GpuState(
        throttle_bits=4,
        power_limit_w=700,
        power_default_w=700,
        temperature_c=45,
        clock_hz=1.98e9,
        highest_clock_hz=1.98e9,
        processes=2,
    )


def test_what_nvidia_smi_cannot_tell_is_unknown():
    assert parsed_smi("[N/A], [N/A], 70.00, [N/A], [Not Supported], 1590", None) == GpuState(
        power_default_w=70, highest_clock_hz=1.59e9
    )


class FakeNvml:
    NVMLError = type("NVMLError", (Exception,), {})
    NVML_TEMPERATURE_GPU = NVML_TEMPERATURE_THRESHOLD_SLOWDOWN = NVML_CLOCK_SM = 0

    def nvmlDeviceGetHandleByUUID(self, uuid):  # noqa: N802 (NVML's own spelling)
        return uuid

    def nvmlDeviceGetPowerManagementLimit(self, _handle):  # noqa: N802
        return 350_000

    def __getattr__(self, _name):
        def unsupported(*_arguments):
            raise self.NVMLError

        return unsupported


def test_what_nvml_does_not_support_is_unknown_and_the_rest_is_told(monkeypatch):
    monkeypatch.setattr(gpu_state_module, "_nvml", FakeNvml)
    assert gpu_state("GPU-1") == GpuState(power_limit_w=350)
