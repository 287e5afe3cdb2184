"""A probe: how long a call takes on the step's own device, alone and again and again."""

from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

HEAD_START = 20_000_000
"""Cycles that the device is kept busy for, some 10 ms, while the host asks for what is timed."""

REPEATS = 10

ENOUGH_S = 0.2
"""Of calls on a CPU, which are fewer where they are long."""


def modes() -> tuple[Any, ...]:
    """What else decides how long a call takes, for who remembers."""
    import torch

    cudnn = torch.backends.cudnn
    return torch.get_float32_matmul_precision(), cudnn.allow_tf32, cudnn.benchmark, torch.get_num_threads()


def device_seconds(made: Callable[[], Callable[[], object]], device: str) -> float:
    """Of one call of what is made. Random numbers that either draws are not missing afterwards."""
    import torch

    on = torch.device(device)
    with torch.random.fork_rng([on] if on.type == "cuda" else []):
        run = made()
        run()
        return _cuda_seconds(run, on) if on.type == "cuda" else _cpu_seconds(run, perf_counter)


def _cuda_seconds(run: Callable[[], object], device: object) -> float:
    """On a device that never waits for the host: it has something else to do meanwhile."""
    import torch

    with torch.cuda.device(device):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize()
        torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]  # noqa: SLF001 (no public way to keep it busy)
        begin.record()
        for _ in range(REPEATS):
            run()
        end.record()
        end.synchronize()
    return float(begin.elapsed_time(end)) / 1e3 / REPEATS


def _cpu_seconds(run: Callable[[], object], now_s: Callable[[], float]) -> float:
    """The median, which a disturbed call does not move."""
    taken: list[float] = []
    while len(taken) < REPEATS and sum(taken) < ENOUGH_S:
        began_s = now_s()
        run()
        taken.append(now_s() - began_s)
    return median(taken)
