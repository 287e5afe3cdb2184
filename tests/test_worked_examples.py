"""The worked examples of the design, from Exams recorded on an H200 and on two CPU cores."""

from functools import cache
from pathlib import Path

import pytest

from gobrrr import schema
from gobrrr.diagnose.diagnosis import Diagnosis, diagnose
from gobrrr.exam import Exam

EXAMS = Path(__file__).parent / "data" / "exams"


@cache
def recorded(name: str) -> Diagnosis:
    return diagnose(schema.read(Exam, EXAMS / f"{name}.json.gz"))


def at_stake(found: Diagnosis) -> dict[str, tuple[float | None, float | None]]:
    return {one.code: (one.seconds_at_stake, one.device_seconds) for one in found.findings}


@pytest.mark.parametrize("name", ["bert_large", "bert_large_compiled", "llama_decode", "cpu_chain"])
def test_the_seconds_of_a_recorded_step_add_to_all_of_it(name):
    found = recorded(name)
    assert sum(found.seconds.values()) == pytest.approx(found.step_s, abs=1e-9)
    assert sum(found.idle_causes_s.values()) == pytest.approx(found.idle_s, abs=1e-9)
    assert sum(row.seconds for row in found.ops) == pytest.approx(found.busy_s, abs=1e-9)
    assert found.compulsory_floor_s <= found.fused_floor_s <= found.step_s


def test_bert_large_trained_eagerly_waits_for_the_host():
    found = recorded("bert_large")
    assert (found.regime, found.limiter) == ("overhead", "host")
    assert found.shares["compute"] == pytest.approx(0.19, abs=0.04)
    assert found.shares["bandwidth"] == pytest.approx(0.25, abs=0.04)
    assert found.shares["overhead"] == pytest.approx(0.56, abs=0.02)
    assert found.fraction_of_floor == pytest.approx(0.17, abs=0.02)
    assert found.flops_dense == pytest.approx(8.94e12, rel=0.01)


def test_while_the_host_limits_fusing_kernels_gains_nothing():
    stakes = at_stake(recorded("bert_large"))
    step_s, device_s = stakes["B201"]
    assert step_s == 0
    assert device_s > 5e-3
    assert stakes["B101"][0] == pytest.approx(50e-3, rel=0.1)


def test_attention_is_found_unfused_where_the_compiler_lost_flash_and_not_before():
    assert not {"B202", "B203"} & at_stake(recorded("bert_large")).keys()
    assert at_stake(recorded("bert_large_compiled"))["B203"][1] > 10e-3


def test_eager_and_compiled_are_measured_by_one_fused_floor():
    eager, compiled = recorded("bert_large"), recorded("bert_large_compiled")
    assert compiled.fused_floor_s == pytest.approx(eager.fused_floor_s, rel=0.05)
    assert compiled.as_run_floor_s != pytest.approx(eager.as_run_floor_s, rel=0.05)


def test_a_compiled_step_is_counted_kernel_by_kernel():
    found = recorded("bert_large_compiled")
    assert found.coverage["formula"] > 0.75
    assert found.coverage["unknown"] < 0.01
    fused = [row for row in found.ops if row.name.startswith("triton_")]
    assert any(len(row.fused_from) > 3 for row in fused)


def test_a_graphed_decode_is_held_up_by_its_device_and_not_by_its_weights():
    found = recorded("llama_decode")
    assert found.limiter == "device"
    assert found.fraction_of_floor == pytest.approx(0.25, abs=0.05)
    assert found.attained_s["bandwidth"] == pytest.approx(0.53e-3, rel=0.15)
    assert found.latency_s + found.inefficient_s["bandwidth"] + found.idle_s > 2 * found.attained_s["bandwidth"]
    assert found.idle_causes_s["launch_latency"] == pytest.approx(found.idle_s)


def test_a_chain_of_three_pointwise_ops_on_a_cpu_is_a_third_of_what_it_could_be():
    found = recorded("cpu_chain")
    assert (found.regime, found.limiter) == ("bandwidth", "device")
    assert found.shares["bandwidth"] == pytest.approx(0.99, abs=0.02)
    assert found.fraction_of_floor == pytest.approx(1 / 3, abs=0.01)
