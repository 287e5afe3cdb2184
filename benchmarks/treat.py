"""What `gobrrr treat` makes of a workload, beside torch.compile's modes in the same process.

    python benchmarks/treat.py bert_large benchmarks/results/h200/treat.jsonl
    python benchmarks/treat.py gpt2 … ; python benchmarks/treat.py llama_decode_eager …

One workload a process, one line a run: eager, torch.compile's default and reduce-overhead (with --autotune also
max-autotune), then what `gobrrr treat` found by itself, with everything that it tried. Peers change nothing but the
compiler's mode. ^C, or `timeout -s INT`, ends the search and writes what was found; before, it ends the modes and goes
on to the search. `treat_together.py` runs several.
"""

import argparse
import json
import signal
import sys
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import torch

import gobrrr.treat.probe
import gobrrr.treat.treating
import gobrrr.treat.trial
from alone import Room, RoomClock
from gobrrr import schema
from gobrrr.errors import GobrrrError
from gobrrr.machine import identify
from gobrrr.timing.clock import Clock, DeviceClock
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, time_steps
from gobrrr.treat.compiling import compiled
from gobrrr.treat.edit import swap_off, swap_on
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treating import treat
from gobrrr.workload import load_factory

WORKLOADS = Path(__file__).parent / "workloads.py"
MODES = ("eager", "default", "reduce-overhead")

COMPILES = 5
"""Steps in which a mode compiles, records and warms up."""


def peer(subject: Subject, mode: str, clock: Clock, room: Room | None) -> dict[str, Any]:
    """The step with its models compiled so, and afterwards as it was."""
    effort = CPU_STEP_EFFORT if subject.device == "cpu" else CUDA_STEP_EFFORT
    began_s = clock.now_s()
    models = subject.models.values() if mode != "eager" else ()
    edits = swap_on(edit for model in models for *_, edit in [compiled(model, mode=mode)])  # within torch's own limits
    try:
        with preserved(subject.origin):
            for _ in range(COMPILES):
                subject.run()
            with nullcontext() if room is None else room.alone():
                times = time_steps(subject.run, clock, effort)
    except Exception as error:  # noqa: BLE001 (a peer that fails is a row that says so)
        return {"mode": mode, "error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        swap_off(edits)
    low, high = times.interval_s.low, times.interval_s.high
    return {"mode": mode, "step_s": times.step_s, "low_s": low, "high_s": high, "spent_s": clock.now_s() - began_s}


def line(row: dict[str, Any]) -> str:
    timed = [one for one in row["peers"] if "step_s" in one]
    shown = [f"{one['mode']} {one['step_s'] * 1e3:.2f} ms" for one in timed]
    if row["treated"] is not None:
        treated_s = row["treated"]["treated_s"]
        best_s = min((one["step_s"] for one in timed), default=float("nan"))
        shown.append(f"treated {treated_s * 1e3:.2f} ms, {best_s / treated_s:.3f}x the best mode")
    return f"{row['workload']}: {', '.join(shown)}"


def searched(subject: Subject, target: str, clock: Clock, options: argparse.Namespace) -> dict[str, Any]:
    began_s = clock.now_s()
    treated = treat(
        lambda: subject.origin,
        target,
        allow=[word for word in options.allow.split(",") if word],
        budget_s=options.budget,
        say=lambda said: print(f"{clock.now_s() - began_s:6.1f} s  {said}", file=sys.stderr, flush=True),
        clock=clock,
    )
    return schema.document_data(treated)


def alone(room: Room) -> None:
    """Whatever is timed."""
    for owner, name in (
        (gobrrr.treat.probe, "device_seconds"),
        (gobrrr.treat.treating, "examine"),
        (gobrrr.treat.trial, "race"),
    ):
        setattr(owner, name, room.timed(getattr(owner, name)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", help="a factory of benchmarks/workloads.py, or FILE.py:NAME")
    parser.add_argument("results", type=Path, help="a line is added to this file")
    parser.add_argument("--autotune", action="store_true", help="also max-autotune, which takes minutes")
    parser.add_argument("--allow", default="", help="as gobrrr treat has it")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds")
    parser.add_argument("--part", choices=("all", "peers", "treated"), default="all")
    parser.add_argument("--room", type=Path, help="a folder of all who share this machine: timed alone")
    options = parser.parse_args()
    target = options.workload if ":" in options.workload else f"{WORKLOADS}:{options.workload}"
    factory = load_factory(target)
    modes = () if options.part == "treated" else (*MODES, *(("max-autotune",) if options.autotune else ()))
    room = None if options.room is None else Room(options.room)
    subject = subject_of(factory)
    clock: Clock = DeviceClock(subject.device) if room is None else RoomClock(subject.device, room)
    if room is not None:
        alone(room)
    for _ in range(3):
        subject.run()
    peers = []
    with suppress(KeyboardInterrupt):
        for mode in modes:
            peers.append(peer(subject, mode, clock, room))
            print(json.dumps(peers[-1]), file=sys.stderr, flush=True)
    torch.compiler.reset()
    try:
        treated = None if options.part == "peers" else searched(subject, target, clock, options)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # what was found is to be written
    except GobrrrError as error:
        sys.exit(str(error))
    finally:
        if room is not None:
            room.leave()
    row = {
        "workload": options.workload,
        "machine": identify(subject.device).name,
        "torch": torch.__version__,
        "peers": peers,
        "treated": treated,
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(line(row))


if __name__ == "__main__":
    main()
