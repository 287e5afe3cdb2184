"""How fast a trace is read and diagnosed, beside inflating and decoding it, and beside peers.

    python benchmarks/trace_time.py SOURCE.json.gz RESULT.json [--folder F] [--hta PYTHON] [--traceinsight PYTHON]

SOURCE is a training step's trace; it is repeated to 50 MB, 200 MB, 800 MB and 3 GB in the folder F, unless they are
there. The PYTHONs are interpreters of environments with HolisticTraceAnalysis and with traceinsight (and ijson): both
call themselves `hta`, so there must be two. They load the trace and break it down by kernels; their temporal breakdown
refuses it. Everything runs in turn, each time in a process of its own; imports are not counted. What is compared runs
one right after the other, and ratios are taken round by round: a shared machine changes its speed within a minute.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from repeat_trace import write

SIZES = {"50 MB": 4, "200 MB": 15, "800 MB": 60, "3 GB": 230}
"""Copies of a trace of 13 MB."""

MEASURED = """
import os, sys, time, resource
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:int(sys.argv[2])])
{setup}
began, used = time.perf_counter(), sum(os.times()[:4])
{body}
wall, cpu = time.perf_counter() - began, sum(os.times()[:4]) - used
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
    "import isal.isal_zlib, msgspec; from pathlib import Path; from gobrrr.timing.traces.reading import read_trace",
    "read_trace(Path(sys.argv[1]))",
)
DIAGNOSE = (
    """
import isal.isal_zlib, msgspec, torch.utils.flop_counter
from pathlib import Path
import gobrrr.work.formulas, gobrrr.work.meta
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.trace_examination import examine_trace
""",
    "diagnose(examine_trace(Path(sys.argv[1])))",
)
AGAIN = (
    """
from pathlib import Path
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.trace_examination import examine_trace
""",
    "diagnose(examine_trace(Path(sys.argv[1])))",
)
PEER = (
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
STREAMED = (
    f"""
from hta.configs.parser_config import ParserBackend, ParserConfig
config = ParserConfig.get_default_cfg()
config.set_parser_backend(ParserBackend.IJSON_BATCH_AND_COMPRESS)
ParserConfig.set_default_cfg(config)
{PEER[0]}""",
    PEER[1],
)
NO_CACHE = {"XDG_CACHE_HOME": os.devnull}


@dataclass(frozen=True)
class Row:
    """One thing that is measured."""

    name: str
    size: str
    code: tuple[str, str]
    cores: int = 1
    python: str = sys.executable
    environment: Mapping[str, str] = field(default_factory=lambda: NO_CACHE)


def rows(hta: str | None, traceinsight: str | None, cache: str) -> Iterator[Row]:
    yield Row("read", "800 MB", READ)
    yield Row("read, two cores", "800 MB", READ, cores=2)
    yield Row("inflate and typed decode", "800 MB", DECODE)
    yield Row("load and diagnose 800 MB", "800 MB", DIAGNOSE)
    yield Row("load and diagnose, two cores", "800 MB", DIAGNOSE, cores=2)
    yield Row("load and diagnose 50 MB, two cores", "50 MB", DIAGNOSE, cores=2)
    yield from (Row(f"load and diagnose {size}", size, DIAGNOSE) for size in SIZES if size != "800 MB")
    yield Row("first opening", "800 MB", AGAIN, environment={"XDG_CACHE_HOME": cache})
    yield Row("second opening", "800 MB", AGAIN, environment={"XDG_CACHE_HOME": cache})
    if hta is not None:
        yield Row("HTA", "800 MB", PEER, python=hta)
    if traceinsight is not None:
        yield Row("traceinsight", "800 MB", PEER, python=traceinsight)
        yield Row("traceinsight, streamed", "800 MB", STREAMED, python=traceinsight)


def measured(row: Row, trace: Path) -> dict[str, float] | None:
    code = MEASURED.format(setup=row.code[0], body=row.code[1])
    command = [row.python, "-c", code, str(trace), str(row.cores)]
    environment = {**os.environ, **row.environment}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)  # noqa: S603 (ours)
    if done.returncode:
        print(done.stderr[-500:], file=sys.stderr)
        return None
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1].replace("'", '"'))
    return found


def summary(taken: Mapping[str, Sequence[Mapping[str, float]]], bytes_of: Mapping[str, int]) -> dict[str, float]:
    """What is claimed: ratios of wall times in one round, seconds, or bytes; of all rounds the median."""

    def middle(name: str, key: str) -> float:
        return median(one[key] for one in taken[name])

    def wall(name: str) -> float:
        return middle(name, "wall_s")

    def ratio(one: str, other: str) -> float:
        return median(a["wall_s"] / b["wall_s"] for a, b in zip(taken[one], taken[other], strict=False))

    ours = "load and diagnose 800 MB"
    found = {
        "over_inflate_and_decode": ratio(ours, "inflate and typed decode"),
        "two_cores_speedup": ratio(ours, "load and diagnose, two cores"),
        "read_two_cores_speedup": ratio("read", "read, two cores"),
        "seconds_50_mb": wall("load and diagnose 50 MB"),
        "seconds_50_mb_two_cores": wall("load and diagnose 50 MB, two cores"),
        "seconds_second_opening": wall("second opening"),
        "peak_bytes_800_mb": middle(ours, "peak_bytes"),
        "peak_bytes_3_gb": middle("load and diagnose 3 GB", "peak_bytes"),
    }
    found |= {f"{peer}_over_ours": ratio(peer, ours) for peer in taken if peer.startswith(("HTA", "traceinsight"))}
    return found | {
        f"seconds_per_gb_{size}": wall(f"load and diagnose {size}") / bytes_of[size] * 1e9 for size in SIZES
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source", type=Path)
    parser.add_argument("result", type=Path)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "repeated_traces")
    parser.add_argument("--hta")
    parser.add_argument("--traceinsight")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    traces = {size: given.folder / f"{copies}.json.gz" for size, copies in SIZES.items()}
    bytes_of = {size: _made(given.source, SIZES[size], trace) for size, trace in traces.items()}
    taken: dict[str, list[dict[str, float]]] = {}
    for number in range(given.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for row in rows(given.hta, given.traceinsight, cache):
                if row.python != sys.executable and number:
                    continue  # minutes each, and far from any bar
                found = measured(row, traces[row.size])
                print(row.name, found, flush=True)
                if found is not None:
                    taken.setdefault(row.name, []).append(found)
    result = {"text_bytes": bytes_of, "rounds": given.rounds, "summary": summary(taken, bytes_of), "rows": taken}
    given.result.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result["summary"], indent=1))


def _made(source: Path, copies: int, trace: Path) -> int:
    """Bytes of its text, kept beside it."""
    note = trace.with_suffix(".bytes")
    if not note.exists():
        print("making", trace, flush=True)
        note.write_text(str(write(source, copies, trace)))
    return int(note.read_text())


if __name__ == "__main__":
    main()
