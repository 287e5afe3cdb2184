"""Damages traces at random and sees whether they are diagnosed or refused in a sentence.

    python tests/fuzz_traces.py SECONDS

What breaks us is kept in tests/data/traces and is from then on a test.
"""

import gzip
import json
import math
import random
import resource
import sys
import tempfile
import time
import traceback
from copy import deepcopy
from pathlib import Path
from typing import Any

from gobrrr import schema
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import GobrrrError
from gobrrr.report.tracks import step_of
from gobrrr.report.view import verdict
from gobrrr.trace_examination import examine_trace
from traces import SHARED, Tape, additions

CORPUS = Path(__file__).parent / "data" / "traces"
HOST = ("cpu_op", "user_annotation", "python_function")
"""Categories of what a trace of a CPU alone holds."""

MOST_S = 60.0
SMALL = 20_000

JUNK: list[Any] = [
    None, True, "", "x", "7", "-1", "stream 7", 0, -1, 1, 3.5, 1e300, -1e300, 1 << 70, math.nan, math.inf, [], [[]],
    [[1, 2], "a"], [[-1]], [[1 << 40, 1 << 40]], {}, {"a": [1]}, "ProfilerStep#1", "kernel", "cpu_op", "X", "\x00\x1f",
    "é" * 50, "}, {", '"', "\\", "aten::mm", "triton_poi_fused_0", "cudaGraphLaunch", "cudaDeviceSynchronize",
    "aten::__class__", "__class__::x", "aten::\ud83d", "autograd::x",
]  # fmt: skip


def documents() -> list[dict[str, Any]]:
    """Small sound traces to start from."""
    graph = Tape()
    for number in range(3):
        graph.step(number, 1000.0 * number, 999.0)
        graph.launch("nvjet", 1000.0 * number + 5, 1000.0 * number + 30, 100.0, call="cudaGraphLaunch")
        graph.kernel("triton_poi_fused_0", 1000.0 * number + 140, 5.0, correlation=graph.number)
    newer = additions().document()
    alone = {**newer, "traceEvents": [event for event in newer["traceEvents"] if event.get("cat") in HOST]}
    return [newer, additions(age="old").document(), graph.document(), alone]


def real_documents() -> list[dict[str, Any]]:
    """Small ones from beside the checkout, if there are any; what comes of them is not kept."""
    small = [path for path in SHARED.rglob("*.json.gz") if path.stat().st_size < SMALL]
    return [json.loads(gzip.open(path).read()) for path in small]


def mutated(rng: random.Random, document: Any) -> bytes:
    """A few values, fields or events replaced, then a few bytes of the text."""
    document = json.loads(json.dumps(document))
    for _ in range(rng.randrange(12)):
        _change(rng, document)
    text = bytearray(json.dumps(document, indent=rng.choice([None, 2])).encode())
    for _ in range(rng.choice([0, 0, 1, 3])):
        place = rng.randrange(len(text))
        text[place : place + rng.randrange(3)] = rng.randbytes(rng.randrange(4))
    if rng.random() < 0.2:
        del text[rng.randrange(len(text)) :]
    whole = bytearray(gzip.compress(bytes(text))) if rng.random() < 0.2 else text
    if rng.random() < 0.1:
        whole[rng.randrange(len(whole))] = rng.randrange(256)
    return bytes(whole)


def _change(rng: random.Random, document: dict[str, Any]) -> None:
    events = document.get("traceEvents")
    if rng.random() < 0.1 or not isinstance(events, list) or not events:
        document[rng.choice([*document, "deviceProperties"])] = _junk(rng)
        return
    place = rng.randrange(len(events))
    event = events[place]
    if rng.random() < 0.1 or not isinstance(event, dict):
        events[place] = deepcopy(rng.choice([_junk(rng), rng.choice(events)]))
        return
    args = event.get("args")
    target = args if isinstance(args, dict) and args and rng.random() < 0.5 else event
    key = rng.choice([*target, "dur", "args"])
    if rng.random() < 0.2:
        target.pop(key, None)
    else:
        target[key] = _junk(rng)


def _junk(rng: random.Random) -> Any:
    return deepcopy(rng.choice(JUNK))


def problem(path: Path) -> str | None:
    """What went wrong with it, or None if it was diagnosed or refused."""
    began = time.process_time()  # others may want the machine too
    try:
        exam = examine_trace(path, processes=1)
        made = diagnose(exam)
        schema.dumps(made)
        verdict(made)
        step_of(exam)
    except GobrrrError as error:
        return None if "\n" not in str(error) else f"not one line: {error}"
    except Exception:  # noqa: BLE001 (that is what is looked for)
        return traceback.format_exc()
    took_s = time.process_time() - began
    return f"took {took_s:.0f} s" if took_s > MOST_S else None


def main() -> None:
    until, seed = time.monotonic() + float(sys.argv[1]), time.time_ns()
    own, real = documents(), real_documents()
    tried = failed = 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        while time.monotonic() < until:
            rng = random.Random(seed + tried)
            chosen = rng.choice([*own, *real])
            path.write_bytes(text := mutated(rng, chosen))
            tried += 1
            if (found := problem(path)) is not None:
                failed += 1
                if chosen in own:
                    (CORPUS / f"fuzz_{seed + tried}.json").write_bytes(text)
                sys.stdout.write(f"{found}\n")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10
    sys.stdout.write(f"{tried} tried, {failed} failed, peak {peak} MiB\n")


if __name__ == "__main__":
    main()
