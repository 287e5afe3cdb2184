"""One step examined live and from a trace that torch's profiler recorded of it: do both say the same?

    python benchmarks/live_trace.py FOLDER bert_large gpt2     # records an Exam and a trace of each, on a GPU
    python benchmarks/live_trace.py FOLDER                     # compares what lies there, anywhere

The trace holds three steps with shapes, as people record them. Compared are the shares of where the time goes, in
points, the FLOPs and the step time; the table goes to FOLDER/live_trace.json.
"""

import argparse
import gc
import json
from pathlib import Path
from typing import Any

from gobrrr import schema, units
from gobrrr.diagnose.diagnosis import Diagnosis, diagnose
from gobrrr.exam import Exam
from gobrrr.trace_examination import examine_trace

EXAM, TRACE = ".exam.json.gz", ".trace.json.gz"
WORKLOADS = Path(__file__).parent / "workloads.py"


def record(name: str, folder: Path) -> None:
    import torch
    from torch.profiler import profile, schedule

    from gobrrr.examination import examine
    from gobrrr.workload import load_factory, made_step

    target = f"{WORKLOADS}:{name}"
    schema.write(examine(load_factory(target), f"benchmarks/workloads.py:{name}"), folder / f"{name}{EXAM}")
    step, _ = made_step(load_factory(target))
    for _ in range(10):
        step()
    torch.cuda.synchronize()
    with profile(
        record_shapes=True,
        schedule=schedule(wait=1, warmup=2, active=3, repeat=1),
        on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(folder / f"{name}{TRACE}")),
    ) as profiler:
        for _ in range(6):
            step()
            profiler.step()
    torch.cuda.synchronize()
    del step
    gc.collect()
    torch.cuda.empty_cache()


def compared(name: str, live: Diagnosis, traced: Diagnosis) -> dict[str, Any]:
    shares = {key: (live.shares or {}).get(key) for key in live.seconds}
    points = {key: 100 * ((traced.shares or {})[key] - share) for key, share in shares.items() if share is not None}
    return {
        "workload": name,
        "machine": live.machine.name,
        "step_s": {"live": live.step_s, "trace": traced.step_s, "low": traced.step_s_low, "high": traced.step_s_high},
        "shares": {"live": live.shares, "trace": traced.shares},
        "most_points": max(map(abs, points.values()), default=None),
        "flops_dense": {"live": live.flops_dense, "trace": traced.flops_dense},
        "formula": traced.coverage["formula"],
    }


def told(row: dict[str, Any]) -> str:
    times, flops = row["step_s"], row["flops_dense"]
    inside = "inside" if times["low"] <= times["live"] <= times["high"] else "OUTSIDE"
    return (
        f"{row['workload']}: live {units.seconds(times['live'])}, from the trace {units.seconds(times['trace'])} "
        f"({inside} {units.seconds(times['low'])} to {units.seconds(times['high'])}); shares "
        f"differ by {row['most_points']:.1f} points at the most; FLOPs {flops['trace']:.4g} of {flops['live']:.4g}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*")
    asked = parser.parse_args()
    for name in asked.names:
        record(name, asked.folder)
    rows = []
    for path in sorted(asked.folder.glob(f"*{EXAM}")):
        name = path.name.removesuffix(EXAM)
        live, traced = schema.read(Exam, path), examine_trace(asked.folder / f"{name}{TRACE}")
        rows.append(compared(name, diagnose(live), diagnose(traced)))
        print(told(rows[-1]))
    (asked.folder / "live_trace.json").write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
