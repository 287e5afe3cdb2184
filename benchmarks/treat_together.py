"""Several workloads at once on a machine of many cores: compiled beside each other, and timed alone.

    python benchmarks/treat_together.py RESULTS.jsonl bert_large gpt2 --until 570

Of each workload torch.compile's modes and `gobrrr treat` run in a process each, `treat.py`; both make one line of the
results. After `--until` seconds the searches are interrupted and write what they have found.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from treat import line

TREAT = Path(__file__).with_name("treat.py")
PARTS = ("peers", "treated")
LEAST_THREADS = 4
"""That compile, of each process."""
LAST_WORDS_S = (20.0, 10.0)
"""For what was interrupted to race once more what it has found, and, interrupted again, to write it."""


def started(workloads: list[str], folder: Path, extra: list[str]) -> "list[subprocess.Popen[bytes]]":
    """Each in a group of its own, which can be stopped with everything that it has started."""
    parts = [(workload, part) for workload in workloads for part in PARTS]
    threads = max(LEAST_THREADS, (os.cpu_count() or 1) // len(parts))
    environment = {**os.environ, "TORCHINDUCTOR_COMPILE_THREADS": str(threads)}
    return [_started(workload, part, folder, extra, environment) for workload, part in parts]


def _started(
    workload: str, part: str, folder: Path, extra: list[str], environment: dict[str, str]
) -> "subprocess.Popen[bytes]":
    results, room = folder / name_of(workload, part), folder / "room"
    command = [sys.executable, str(TREAT), workload, str(results), "--part", part, "--room", str(room), *extra]
    log = results.with_suffix(".log").open("wb")
    return subprocess.Popen(  # noqa: S603 (our own)
        command, stdout=log, stderr=log, start_new_session=True, env=environment
    )


def name_of(workload: str, part: str) -> str:
    return f"{workload.replace('/', '_').replace(':', '_')}.{part}.jsonl"


def waited(running: "list[subprocess.Popen[bytes]]", until_s: float) -> None:
    for process in running:
        while process.poll() is None and monotonic() < until_s:
            sleep(0.5)
    for patience_s in LAST_WORDS_S:
        late = [process for process in running if process.poll() is None]
        for process in late:
            os.killpg(process.pid, signal.SIGCONT)
            process.send_signal(signal.SIGINT)
        until_s += patience_s
        while any(process.poll() is None for process in late) and monotonic() < until_s:
            sleep(0.2)
    for process in running:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


def rows(workloads: list[str], folder: Path) -> Iterator[dict[str, Any]]:
    """Both parts of each that wrote something."""
    for workload in workloads:
        written = [folder / name_of(workload, part) for part in PARTS]
        parts = [json.loads(path.read_text()) for path in written if path.is_file()]
        if parts:
            found = {key: value for part in parts for key, value in part.items() if value}
            yield {"peers": [], "treated": None, **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, help="a line is added to this file for each workload")
    parser.add_argument("workloads", nargs="+")
    parser.add_argument("--until", type=float, default=1800.0, help="seconds")
    parser.add_argument("--logs", type=Path, help="a folder for what the processes said")
    given, extra = parser.parse_known_args()
    until_s = monotonic() + given.until
    with TemporaryDirectory() as name:
        folder = Path(name)
        waited(started(given.workloads, folder, extra), until_s)
        if given.logs is not None:
            given.logs.mkdir(parents=True, exist_ok=True)
            for log in folder.glob("*.log"):
                (given.logs / log.name).write_bytes(log.read_bytes())
        given.results.parent.mkdir(parents=True, exist_ok=True)
        with given.results.open("a") as file:
            for row in rows(given.workloads, folder):
                file.write(json.dumps(row) + "\n")
                print(line(row))


if __name__ == "__main__":
    main()
