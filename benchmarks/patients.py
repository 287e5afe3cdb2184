"""Every patient and its healthy twin examined: which findings are made, and is what was at stake what the twin gains?

    python benchmarks/patients.py tests/data/patients/cpu --device cpu
    python benchmarks/patients.py tests/data/patients/h200 --device cuda

Exams go into the folder, the table beside them as `table.json`. Names after it take only the patients whose code or
name contains one of them. Without a device nothing is run, and the table is made again from the Exams that are there.
"""

import argparse
import gc
import os
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from gobrrr import schema, units
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import GobrrrError
from gobrrr.exam import Exam
from gobrrr.examination import examine
from gobrrr.patients import ALL, EVERYTHING, Patient
from gobrrr.stats import Sample
from gobrrr.timing.steady import StepEffort
from gobrrr.workload import load_factory

EFFORT = StepEffort(warmup_steps=30, warmup_s=3, window_s=0.2, window_steps=5, windows=10, budget_s=4)
"""Sixty examinations are to take minutes."""

TWINS = ("sick", "healthy")

TRIES = 4

FACTOR = 2
"""Between what was at stake and what the twin gains: a promise that keeps to it is one."""


@dataclass(frozen=True, slots=True)
class Row:
    code: str
    name: str
    sick_s: float
    healthy_s: float
    at_stake_s: float | None
    """By the patient's own finding."""
    device_at_stake_s: float | None
    found_sick: tuple[str, ...]
    found_healthy: tuple[str, ...]

    @property
    def gained_s(self) -> float:
        return self.sick_s - self.healthy_s

    @property
    def within(self) -> bool | None:
        """Whether both agree to the factor; None where nothing was promised, or only for each sample of a batch."""
        if not self.at_stake_s or self.code == "B602":
            return None
        return self.gained_s / FACTOR <= self.at_stake_s <= FACTOR * self.gained_s


@dataclass(frozen=True, slots=True)
class Table:
    SCHEMA: ClassVar[str] = "patients"
    VERSION: ClassVar[int] = 1

    machine: str
    torch: str | None
    rows: tuple[Row, ...]


def path(folder: Path, patient: Patient, twin: str) -> Path:
    return folder / f"{patient.code or 'all'}-{patient.name}-{twin}.json.gz"


def examined(patient: Patient, twin: str) -> Exam:
    torch.compiler.reset()
    exam = examine(
        load_factory(patient.target(twin)),
        f"patients/{patient.name}.py:{twin}",
        batch_test=patient.batch_test,
        effort=EFFORT,
    )
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return exam


def quietest(patient: Patient, twin: str) -> Exam:
    """Of a few tries, on a host with other guests; whose disease is noise is tried once."""
    tries = [examined(patient, twin)]
    while patient.code != "B502" and len(tries) < TRIES and Sample(tries[-1].window_step_s).is_noisy:
        tries.append(examined(patient, twin))
    return min(tries, key=lambda exam: Sample(exam.window_step_s).spread)


def row(patient: Patient, folder: Path) -> Row:
    """From the Exams that are kept."""
    sick, healthy = (diagnose(schema.read(Exam, path(folder, patient, twin))) for twin in TWINS)
    own = next((one for one in sick.findings if one.code == patient.code), None)
    return Row(
        code=patient.code,
        name=patient.name,
        sick_s=sick.step_s,
        healthy_s=healthy.step_s,
        at_stake_s=None if own is None else own.seconds_at_stake,
        device_at_stake_s=None if own is None else own.device_seconds,
        found_sick=tuple(one.code for one in sick.findings),
        found_healthy=tuple(one.code for one in healthy.findings),
    )


def told(one: Row) -> str:
    agrees = {True: "agrees", False: "DIFFERS", None: ""}[one.within]
    missed = "" if one.code in (*one.found_sick, "") else "  NOT FOUND"
    return (
        f"{one.code or 'all':5} {one.name:20} {units.seconds(one.sick_s):>8} → {units.seconds(one.healthy_s):>8}, at "
        f"stake {units.seconds(one.at_stake_s):>8} {agrees:8} {' '.join(one.found_sick)} | "
        f"{' '.join(one.found_healthy)}{missed}"
    )


def recorded(patient: Patient, folder: Path) -> None:
    try:
        for twin in TWINS:
            schema.write(quietest(patient, twin), path(folder, patient, twin))
        print(told(row(patient, folder)), flush=True)
    except GobrrrError as error:
        print(f"{patient.code} {patient.name}: {error}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("names", nargs="*")
    asked = parser.parse_intermixed_args()
    os.environ.setdefault("KINETO_LOG_LEVEL", "6")
    everyone = (*ALL, EVERYTHING)
    for patient in everyone:
        wanted = not asked.names or any(name in f"{patient.code} {patient.name}" for name in asked.names)
        if asked.device in patient.devices and wanted:
            recorded(patient, asked.folder)
    there = [each for each in everyone if all(path(asked.folder, each, twin).exists() for twin in TWINS)]
    rows = [row(patient, asked.folder) for patient in there]
    machine = schema.read(Exam, path(asked.folder, there[0], "sick")).ceilings
    schema.write(Table(machine.device, machine.torch, tuple(rows)), asked.folder / "table.json")
    agree = [one.within for one in rows if one.within is not None]
    print(*(told(one) for one in rows), sep="\n")
    print(f"{sum(agree)} of {len(agree)} stakes are within a factor {FACTOR} of what the twin gains")


if __name__ == "__main__":
    main()
