"""Training steps and a decoded token: predicted from the CPU, and measured on the card, in one run.

    gobrrr machine --json > h200.json
    python -m benchmarks.predict_steps --on h200-sxm --ceilings h200.json --json > RESULT.json

Each step is timed in three processes, for a host-bound one differs by 15 % between them. Predictions see no device:
once with the datasheet, once with what `gobrrr machine` measured. `off` is how far a prediction lies outside of the
measured range, over the nearest end of it. Bars: 25 % by datasheet, 15 % calibrated.
"""

import argparse
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from subprocess import run
from typing import ClassVar

from gobrrr import schema

WORKLOADS = Path(__file__).with_name("workloads.py")
NAMES = (
    "bert_large",
    "bert_large_compiled",
    "gpt2",
    "gpt2_compiled",
    "llama_decode_eager",
    "llama_decode_compiled",
    "llama_decode",
)
PROCESSES = 3


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    measured_s: tuple[float, ...]
    predicted_s: float
    limiter: str
    off: float
    calibrated_s: float | None
    calibrated_off: float | None


@dataclass(frozen=True, slots=True)
class PredictedSteps:
    SCHEMA: ClassVar[str] = "predicted_steps"
    VERSION: ClassVar[int] = 1

    accelerator: str
    steps: tuple[Row, ...]


def off(predicted_s: float, measured_s: Sequence[float]) -> float:
    """Zero within the range."""
    low, high = min(measured_s), max(measured_s)
    return max(0.0, predicted_s / high - 1, 1 - predicted_s / low)


def measured(name: str) -> float:
    """In a process of its own."""
    code = (
        "from benchmarks import workloads; from gobrrr.timing.clock import DeviceClock; "
        "from gobrrr.timing.steady import CUDA_STEP_EFFORT, time_steps; "
        f"print(time_steps(workloads.{name}(), DeviceClock(workloads.DEVICE), CUDA_STEP_EFFORT).step_s)"
    )
    done = run([sys.executable, "-c", code], capture_output=True, text=True, check=True)  # noqa: S603 (our own)
    return float(done.stdout.split()[-1])


def predicted(name: str, card: str, *options: str) -> tuple[float, str]:
    """By the command, where no device can be seen."""
    command = ["gobrrr", "predict", f"{WORKLOADS}:{name}", "--on", card, "--json", *options]
    without = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run(command, env=without, capture_output=True, text=True, check=True)  # noqa: S603 (our own)
    (one,) = json.loads(done.stdout)["predictions"]
    return one["step_s"], one["limiter"]


def row(name: str, card: str, ceilings: Path | None) -> Row:
    seconds = tuple(measured(name) for _ in range(PROCESSES))
    predicted_s, limiter = predicted(name, card)
    calibrated_s = predicted(name, card, "--ceilings", str(ceilings))[0] if ceilings else None
    calibrated_off = None if calibrated_s is None else off(calibrated_s, seconds)
    return Row(name, seconds, predicted_s, limiter, off(predicted_s, seconds), calibrated_s, calibrated_off)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--on", required=True, metavar="CARD", help="the card's datasheet: h200-sxm")
    parser.add_argument("--ceilings", type=Path, help="`gobrrr machine --json` of it")
    parser.add_argument("--json", action="store_true", help="data on stdout, nothing else")
    given = parser.parse_args(arguments)
    found = PredictedSteps(given.on, tuple(row(name, given.on, given.ceilings) for name in NAMES))
    if given.json:
        print(schema.dumps(found))
        return
    for one in found.steps:
        seconds = " ".join(f"{1e3 * second:.2f}" for second in sorted(one.measured_s))
        print(
            f"{one.name:24} {seconds} ms  predicted {1e3 * one.predicted_s:.2f} ({one.off:.0%}) {one.limiter}", end=""
        )
        print(
            "" if one.calibrated_s is None else f"  calibrated {1e3 * one.calibrated_s:.2f} ({one.calibrated_off:.0%})"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
