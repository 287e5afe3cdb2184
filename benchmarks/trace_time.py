"""How fast a trace is read and diagnosed, beside inflating and decoding it, and beside peers.

    python benchmarks/trace_time.py TRACE.json.gz RESULT.json [--peer PYTHON] [--rounds 3]

TRACE should be large: a training step's trace repeated to some 800 MB. PYTHON is the interpreter of an environment that
has HolisticTraceAnalysis and traceinsight. Everything runs in turn, each time in a process of its own on one core;
imports are not counted.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from statistics import median

MEASURED = """
import os, sys, time, resource
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[2])])
{setup}
began, used = time.perf_counter(), sum(os.times()[:2])
{body}
wall, cpu = time.perf_counter() - began, sum(os.times()[:2]) - used
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print({{"wall_s": wall, "cpu_s": cpu, "peak_bytes": peak}})
"""

DECODE = (
    """
import gc
from pathlib import Path
from gobrrr.timing.traces.decode import decoder
from gobrrr.timing.traces.inflate import Text
from gobrrr.timing.traces.slabs import Slabs
gc.disable()
decoder()
""",
    "for slab in Slabs(Text(Path(sys.argv[1])), exact=False): decoder().decode(slab)",
)
READ = (
    "from pathlib import Path; from gobrrr.timing.traces.reading import read_trace",
    "read_trace(Path(sys.argv[1]))",
)
DIAGNOSE = (
    """
import torch
from pathlib import Path
import gobrrr.work.formulas
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.trace_examination import examine_trace
""",
    "diagnose(examine_trace(Path(sys.argv[1])))",
)
HTA = (
    """
import logging, tempfile
from pathlib import Path
from hta.trace_analysis import TraceAnalysis
logging.disable(logging.CRITICAL)
folder = Path(tempfile.mkdtemp())
trace = folder / Path(sys.argv[1]).name
trace.symlink_to(Path(sys.argv[1]).resolve())
""",
    """
analysis = TraceAnalysis(trace_files={0: str(trace)}, trace_dir=str(folder))
analysis.get_gpu_kernel_breakdown(visualize=False)
""",
)
OURS = {
    "inflate and typed decode": (*DECODE, 1),
    "read": (*READ, 1),
    "read, two cores": (*READ, 2),
    "load and diagnose": (*DIAGNOSE, 1),
    "load and diagnose, two cores": (*DIAGNOSE, 2),
}


def measured(python: str, setup: str, body: str, cores: int, trace: Path) -> dict[str, float]:
    code = MEASURED.format(setup=setup, body=body)
    command = [python, "-c", code, str(trace), str(cores)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 (our own code)
    if done.returncode:
        return {"failed": 1.0}
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("trace", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--peer")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    rows: dict[str, list[dict[str, float]]] = {}
    for _ in range(given.rounds):
        for name, (setup, body, cores) in OURS.items():
            rows.setdefault(name, []).append(measured(sys.executable, setup, body, cores, given.trace))
            print(name, rows[name][-1], flush=True)
        if given.peer:
            rows.setdefault("HTA", []).append(measured(given.peer, *HTA, 1, given.trace))
            print("HTA", rows["HTA"][-1], flush=True)
    result = {
        name: {key: median(one[key] for one in found) for key in found[0]} for name, found in rows.items() if found
    }
    given.result.write_text(json.dumps({"trace_bytes": given.trace.stat().st_size, **result}, indent=1) + "\n")
    diagnosed = result["load and diagnose"]["cpu_s"]
    print("over inflate and decode", diagnosed / result["inflate and typed decode"]["cpu_s"])
    if "cpu_s" in result.get("HTA", {}):
        print("HTA over ours", result["HTA"]["cpu_s"] / diagnosed)


if __name__ == "__main__":
    main()
