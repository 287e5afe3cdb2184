"""Training steps and a decoded token: measured on the card, predicted where there is none.

    python -m benchmarks.predict_steps measure --processes 2 > MEASURED.json      # on the card
    gobrrr machine --json > CEILINGS.json                                         # there too
    python -m benchmarks.predict_steps predict MEASURED.json --on h200-sxm --ceilings CEILINGS.json --json > RESULT.json

Each step is timed in several processes, for a host-bound one differs by 15 % between them. Predictions are made by the
datasheet and by what `gobrrr machine` measured. `off` is how far a prediction lies outside of the measured range, over
the nearest end of it. Bars: 25 % by datasheet, 15 % calibrated.
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


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    measured_s: tuple[float, ...]
    predicted_s: float
    regime: str
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


def predicted(name: str, card: str, *options: str) -> tuple[float, str, str]:
    """By the command, where no device can be seen."""
    command = ["gobrrr", "predict", f"{WORKLOADS}:{name}", "--on", card, "--json", *options]
    without = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = run(command, env=without, capture_output=True, text=True, check=True)  # noqa: S603 (our own)
    (one,) = json.loads(done.stdout)["predictions"]
    return one["step_s"], one["regime"], one["limiter"]


def row(name: str, seconds: Sequence[float], card: str, ceilings: Path | None) -> Row:
    predicted_s, regime, limiter = predicted(name, card)
    calibrated_s = predicted(name, card, "--ceilings", str(ceilings))[0] if ceilings else None
    calibrated_off = None if calibrated_s is None else off(calibrated_s, seconds)
    beyond = off(predicted_s, seconds)
    return Row(name, tuple(seconds), predicted_s, regime, limiter, beyond, calibrated_s, calibrated_off)


def line(one: Row) -> str:
    seconds = " ".join(f"{1e3 * second:.2f}" for second in sorted(one.measured_s))
    said = (
        f"{one.name:24} {seconds} ms  predicted {1e3 * one.predicted_s:.2f} ({one.off:.0%}) {one.regime}, {one.limiter}"
    )
    if one.calibrated_s is None:
        return said
    return f"{said}  calibrated {1e3 * one.calibrated_s:.2f} ({one.calibrated_off:.0%})"


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    measuring = commands.add_parser("measure", help="seconds of each step, on this machine's card")
    measuring.add_argument("--processes", type=int, default=3)
    predicting = commands.add_parser("predict", help="the same steps, beside what was measured")
    predicting.add_argument("measured", type=Path)
    predicting.add_argument("--on", required=True, metavar="CARD", help="the card's datasheet: h200-sxm")
    predicting.add_argument("--ceilings", type=Path, help="`gobrrr machine --json` of it")
    predicting.add_argument("--json", action="store_true", help="data on stdout, nothing else")
    given = parser.parse_args(arguments)
    if given.command == "measure":
        print(json.dumps({name: [measured(name) for _ in range(given.processes)] for name in NAMES}))
        return
    seen = json.loads(given.measured.read_text())
    found = PredictedSteps(given.on, tuple(row(name, seen[name], given.on, given.ceilings) for name in seen))
    print(schema.dumps(found) if given.json else "\n".join(map(line, found.steps)))


if __name__ == "__main__":
    main(sys.argv[1:])
