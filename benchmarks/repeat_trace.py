"""A recorded trace, repeated one after the other in time: as large a trace as one likes, with steps that are real.

    python benchmarks/repeat_trace.py SOURCE.json.gz COPIES OUT.json.gz

Times move on with each copy, and so do all numbers that join events: correlations, ids, steps.
"""

import gzip
import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

NUMBERS = ("External id", "correlation", "Ev Idx", "Record function id", "Sequence number", "Python id")
STEP = "ProfilerStep#"


def repeated(events: list[dict[str, Any]], copies: int) -> Iterator[dict[str, Any]]:
    timed = [event for event in events if "ts" in event]
    yield from (event for event in events if "ts" not in event)
    began = min(event["ts"] for event in timed)
    length = max(event["ts"] + event.get("dur", 0) for event in timed) - began + 50
    past = 1 + max(number for event in timed for number in _numbers(event))
    for copy in range(copies):
        yield from (_moved(event, copy, copy * length, copy * past) for event in timed)


def _numbers(event: Mapping[str, Any]) -> Iterator[int]:
    found = [event.get("id"), *(event.get("args", {}).get(name) for name in NUMBERS)]
    yield from (number for number in found if isinstance(number, int))


def _moved(event: dict[str, Any], copy: int, us: float, further: int) -> dict[str, Any]:
    moved = {**event, "ts": round(event["ts"] + us, 3)}
    if isinstance(event.get("id"), int):
        moved["id"] = event["id"] + further
    if isinstance(event.get("args"), dict):
        moved["args"] = {
            name: value + further if name in NUMBERS and isinstance(value, int) and value > 0 else value
            for name, value in event["args"].items()
        }
    if event.get("name", "").startswith(STEP):
        moved["name"] = f"{STEP}{int(event['name'].removeprefix(STEP)) + 100 * copy}"
    return moved


def text_of(event: dict[str, Any]) -> str:
    """In the profiler's own layout: five lines an event."""
    args = event.pop("args", None)
    whole = json.dumps(event)[1:-1].replace(', "ts"', ',\n    "ts"')
    rest = "" if args is None else f',\n    "args": {{\n      {json.dumps(args)[1:-1]}\n    }}'
    return f"  {{\n    {whole}{rest}\n  }}"


def write(source: Path, copies: int, target: Path) -> int:
    """Bytes of its text."""
    document = json.loads(gzip.decompress(source.read_bytes()))
    events = repeated(document.pop("traceEvents"), copies)
    size = 0
    with gzip.open(target, "wb", compresslevel=3) as file:
        size += file.write(json.dumps(document)[:-1].encode() + b',\n  "traceEvents": [\n')
        for place, event in enumerate(events):
            size += file.write(((",\n" if place else "") + text_of(dict(event))).encode())
        size += file.write(b"\n]}\n")
    return size


if __name__ == "__main__":
    print(write(Path(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3])), "bytes")
