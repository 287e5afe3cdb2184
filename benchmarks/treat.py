"""What `gobrrr treat` makes of a workload, beside torch.compile's modes in the same process.

    python benchmarks/treat.py bert_large benchmarks/results/h200/treat.jsonl
    python benchmarks/treat.py gpt2 … ; python benchmarks/treat.py llama_decode_eager …

One workload a process, one line a run: eager, torch.compile's default and reduce-overhead (with --autotune also
max-autotune), then what `gobrrr treat` found by itself, with everything that it tried. Peers change nothing but the
compiler's mode. ^C, or `timeout -s INT`, ends the search and writes what was found.
"""

import argparse
import json
import sys
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from gobrrr import schema
from gobrrr.errors import GobrrrError
from gobrrr.machine import identify
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, time_steps
from gobrrr.treat.compiling import compiled
from gobrrr.treat.edit import swap_off, swap_on
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treating import treat
from gobrrr.workload import load_factory

WORKLOADS = Path(__file__).parent / "workloads.py"
MODES = ("eager", "default", "reduce-overhead")


def peer(subject: Subject, mode: str) -> dict[str, Any]:
    """The step with its models compiled so, and afterwards as it was."""
    device = subject.device
    clock, effort = DeviceClock(device), CPU_STEP_EFFORT if device == "cpu" else CUDA_STEP_EFFORT
    began = perf_counter()
    edits = swap_on(compiled(model, mode=mode) for model in subject.models.values()) if mode != "eager" else []
    try:
        with preserved(subject.origin):
            times = time_steps(subject.run, clock, effort)
    except Exception as error:  # noqa: BLE001 (a peer that fails is a row that says so)
        return {"mode": mode, "error": f"{type(error).__name__}: {str(error)[:300]}"}
    finally:
        swap_off(edits)
    low, high = times.interval_s.low, times.interval_s.high
    return {"mode": mode, "step_s": times.step_s, "low_s": low, "high_s": high, "spent_s": perf_counter() - began}


def line(peers: list[dict[str, Any]], treated: Any) -> str:
    timed = [one for one in peers if "step_s" in one]
    shown = [f"{one['mode']} {one['step_s'] * 1e3:.2f} ms" for one in timed]
    best = min((one["step_s"] for one in timed), default=float("nan"))
    return (
        f"{', '.join(shown)}; treated {treated.treated_s * 1e3:.2f} ms, {best / treated.treated_s:.3f}x the best mode"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", help="a factory of benchmarks/workloads.py, or FILE.py:NAME")
    parser.add_argument("results", type=Path, help="a line is added to this file")
    parser.add_argument("--autotune", action="store_true", help="also max-autotune, which takes minutes")
    parser.add_argument("--allow", default="", help="as gobrrr treat has it")
    parser.add_argument("--budget", type=float, default=480.0, help="seconds")
    parser.add_argument("--no-peers", action="store_true")
    options = parser.parse_args()
    target = options.workload if ":" in options.workload else f"{WORKLOADS}:{options.workload}"
    factory = load_factory(target)
    modes = () if options.no_peers else (*MODES, *(("max-autotune",) if options.autotune else ()))
    subject = subject_of(factory)
    for _ in range(3):
        subject.run()
    peers = []
    for mode in modes:
        peers.append(peer(subject, mode))
        print(json.dumps(peers[-1]), file=sys.stderr, flush=True)
    torch.compiler.reset()
    began, say = perf_counter(), partial(print, file=sys.stderr, flush=True)
    try:
        treated = treat(
            lambda: subject.origin,
            target,
            allow=[word for word in options.allow.split(",") if word],
            budget_s=options.budget,
            say=lambda sentence: say(f"{perf_counter() - began:6.1f} s  {sentence}"),
        )
    except GobrrrError as error:
        sys.exit(str(error))
    row = {
        "workload": options.workload,
        "machine": identify(subject.device).name,
        "torch": torch.__version__,
        "peers": peers,
        "treated": schema.document_data(treated),
    }
    options.results.parent.mkdir(parents=True, exist_ok=True)
    with options.results.open("a") as file:
        file.write(json.dumps(row) + "\n")
    print(line(peers, treated))


if __name__ == "__main__":
    main()
