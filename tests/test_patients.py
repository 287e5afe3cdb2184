"""Every patient has its disease and its twin does not: on Exams recorded on a CPU and on an H200."""

from pathlib import Path

import pytest
import torch

from gobrrr import schema
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.diagnose.findings import FINDINGS
from gobrrr.exam import Exam
from gobrrr.patients import ALL, EVERYTHING, PATIENTS, WITHOUT, Patient
from gobrrr.workload import load_factory, made_step

RECORDED = sorted((Path(__file__).parent / "data" / "patients").glob("*/*-*-*.json.gz"))
"""By machine; `benchmarks/patients.py` records them."""

ARGUED: dict[tuple[str, str], dict[str, str]] = {
    ("h200", "sync_points"): {
        "B103": "each layer's norm is a tiny kernel with the sync and without it",
        "B104": "and the norms are taken in a loop in Python",
    },
    ("h200", "recompiles"): {"B504": "a step of 0.4 ms: the profiler costs as much as all of it"},
    ("h200", "busy_idler"): {"B504": "a step of 0.1 ms: the profiler costs as much as all of it"},
    ("h200", "wave_quantization"): {"B504": "a step of 0.1 ms: the profiler costs more than all of it"},
    ("h200", "everything"): {"B201": "compiled, and sums over the batch are still left in kernels of their own"},
}
"""Findings on a healthy twin that are there for a reason, by machine and twin."""

SHARED = {
    "cpu2": {
        "B502": "two cores with other guests: windows differ whatever is timed",
        "B504": "the one profiled step shares them too",
    }
}
"""Findings about a measurement, by machines that are not alone: what they say there is true, and no disease."""


def name(path: Path) -> str:
    return f"{path.parent.name}/{path.name.removesuffix('.json.gz')}"


def codes(path: Path) -> set[str]:
    return {one.code for one in diagnose(schema.read(Exam, path)).findings}


def of(twin: str) -> list[Path]:
    return [path for path in RECORDED if path.name.endswith(f"-{twin}.json.gz")]


# The matrix


@pytest.mark.parametrize("path", of("sick"), ids=name)
def test_a_patients_disease_is_found(path):
    code = path.name.partition("-")[0]
    assert code == "all" or code in codes(path)


@pytest.mark.parametrize("path", of("healthy"), ids=name)
def test_a_healthy_twin_has_no_disease_at_all(path):
    _, patient, _ = path.name.split("-")
    argued = ARGUED.get((path.parent.name, patient), {})
    assert codes(path) - set(SHARED.get(path.parent.name, {})) <= set(argued), "argue, or heal the twin or the finding"
    assert set(argued) <= codes(path), "argued, but not there any more"


def test_no_finding_breaks_on_any_patient():
    assert all("B501" not in codes(path) for path in RECORDED)


@pytest.mark.parametrize("machine", sorted({path.parent.name for path in RECORDED}))
def test_every_patient_of_a_recorded_machine_is_there_with_its_twin(machine):
    device = "cpu" if machine.startswith("cpu") else "cuda"
    there = {path.name for path in RECORDED if path.parent.name == machine}
    expected = {
        f"{patient.code or 'all'}-{patient.name}-{twin}.json.gz"
        for patient in (*ALL, EVERYTHING)
        if device in patient.devices
        for twin in ("sick", "healthy")
    }
    assert there == expected


EVERYTHING_WRONG = {
    "cpu": {"B104", "B201", "B202", "B207", "B208"},
    "cuda": {"B102", "B104", "B201", "B202", "B207", "B208", "B301", "B302"},
}
"""Loop, chains, attention, optimizer, loss; and where there are units for it, precision, odd vocabulary and waiting."""


@pytest.mark.parametrize("path", [path for path in of("sick") if path.name.startswith("all-")], ids=name)
def test_everything_wrong_is_named_in_one_report(path):
    assert codes(path) >= EVERYTHING_WRONG["cpu" if path.parent.name.startswith("cpu") else "cuda"]


# The patients themselves


def test_every_finding_has_a_patient_or_a_reason_to_have_none():
    assert {*PATIENTS, *WITHOUT} == set(FINDINGS)
    assert not set(PATIENTS) & set(WITHOUT)


def twins(device: str) -> list[tuple[Patient, str]]:
    return [(each, twin) for each in (*ALL, EVERYTHING) if device in each.devices for twin in ("sick", "healthy")]


@pytest.mark.parametrize(("patient", "twin"), twins("cpu"), ids=lambda value: getattr(value, "name", value))
def test_a_patient_can_take_a_step(patient, twin):
    with torch.compiler.set_stance("force_eager"):
        step, workload = made_step(load_factory(patient.target(twin)))
        step()
    assert workload is not None or not patient.batch_test, "only a workload has a batch to double"


@pytest.mark.gpu
@pytest.mark.parametrize(("patient", "twin"), twins("cuda"), ids=lambda value: getattr(value, "name", value))
def test_a_patient_can_take_a_step_on_a_gpu(patient, twin):
    free_bytes, total_bytes = torch.cuda.mem_get_info()
    if (patient.name, twin) == ("near_limit", "sick") and free_bytes < 0.95 * total_bytes:
        pytest.skip("it wants nearly all of the memory, and others have a part of it")
    with torch.compiler.set_stance("force_eager"):
        step, _ = made_step(load_factory(patient.target(twin)))
        step()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
