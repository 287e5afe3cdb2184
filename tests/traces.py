"""Small traces made by hand, in the layouts and with the category names of all ages; and where recorded ones lie."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest

SHARED = Path(os.environ.get("GOBRRR_TRACES") or Path(__file__).resolve().parents[2] / "shared" / "traces")

H200 = {"id": 0, "name": "NVIDIA H200", "numSms": 132}

NAMES = {
    "new": {
        "op": "cpu_op",
        "call": "cuda_runtime",
        "kernel": "kernel",
        "copy": "gpu_memcpy",
        "note": "user_annotation",
    },
    "old": {"op": "Operator", "call": "Runtime", "kernel": "Kernel", "copy": "Memcpy", "note": "Operator"},
}


def shared(name: str) -> Path:
    """A recorded trace; without it the test is skipped, visibly."""
    path = SHARED / name
    if not path.exists():
        pytest.skip(f"{path} is not there")
    return path


class Tape:
    """Events of one thread and one stream, written as a profiler would."""

    def __init__(self, age: str = "new") -> None:
        self.names = NAMES[age]
        self.events: list[dict[str, Any]] = []
        self.number = 0

    def span(self, what: str, name: str, ts: float, dur: float, *, tid: Any = 1, pid: Any = 1, **args: Any) -> None:
        category = self.names.get(what, what)
        self.events.append(
            {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def step(self, number: int, ts: float, dur: float) -> None:
        self.span("note", f"ProfilerStep#{number}", ts, dur)

    def op(self, name: str, ts: float, dur: float, dims: Any = None, types: Any = None, **more: Any) -> None:
        self.number += 1
        shapes = {} if dims is None else {"Input Dims": dims, "Input type": types or ["float"] * len(dims)}
        self.span("op", name, ts, dur, **{"External id": self.number}, **shapes, **more)

    def launch(
        self, name: str, asked: float, start: float, dur: float, *, call: str = "cudaLaunchKernel", **args: Any
    ) -> None:
        """A call of 4 µs, and its kernel."""
        self.number += 1
        self.span("call", call, asked, 4.0, correlation=self.number)
        self.kernel(name, start, dur, correlation=self.number, **args)

    def kernel(self, name: str, start: float, dur: float, **args: Any) -> None:
        self.span("kernel", name, start, dur, tid=7, pid=0, device=0, stream=7, **args)

    def call(self, name: str, ts: float, dur: float) -> None:
        self.number += 1
        self.span("call", name, ts, dur, correlation=self.number)

    def document(self) -> dict[str, Any]:
        return {"schemaVersion": 1, "deviceProperties": [H200], "traceEvents": self.events, "traceName": "by hand"}

    def save(self, path: Path) -> Path:
        return saved(path, json.dumps(self.document(), indent=2).encode())


def saved(path: Path, text: bytes) -> Path:
    path.write_bytes(gzip.compress(text) if path.suffix == ".gz" else text)
    return path


def additions(steps: int = 3, *, age: str = "new", kernel_us: float = 100.0, host_us: float = 40.0) -> Tape:
    """Steps of two additions of 2²⁰ floats each; the device runs behind, and the first kernel is of a step before."""
    tape = Tape(age)
    tape.kernel("before", 0.0, 30.0, correlation=999_999)
    start = 50.0
    for number in range(steps):
        begin = 100.0 + number * 2 * host_us
        tape.step(number, begin, 2 * host_us - 1.0)
        for place in range(2):
            asked = begin + place * host_us
            tape.op("aten::add", asked + 1, 20.0, [[1 << 20], [1 << 20], []], ["float", "float", "Scalar"])
            start = max(start, asked + 12.0)
            tape.launch("add_kernel", asked + 5, start, kernel_us)
            start += kernel_us + 1.0
    return tape
