"""W: bytes to and from memory, in buffers that no cache holds."""

from functools import partial

from gobrrr.machine.bench import Bench, rates
from gobrrr.machine.memory import buffer_bytes, free_bytes
from gobrrr.machine.probes.registry import Samples, probe


@probe("dram", "memory bandwidth")
def dram(bench: Bench) -> Samples:
    """Read-only (n bytes), copy (2n) and add (3n); the ceiling is the best of them.

    Which one wins differs: reading alone never turns the bus around, but a sum has a tail, and where a
    write first fetches the line it overwrites, only reading shows the whole bus.
    """
    import torch

    size = buffer_bytes(
        free_bytes(bench.machine), bench.machine.cache_bytes, bench.effort.largest_buffer_bytes, buffers=3
    )
    a, b = (torch.empty(size // 4, device=bench.device, dtype=torch.float32).normal_() for _ in range(2))
    c = torch.empty_like(a)
    patterns = {
        "read": (size, partial(torch.sum, a)),
        "copy": (2 * size, partial(c.copy_, a)),
        "add": (3 * size, partial(torch.add, a, b, out=c)),
    }
    # One pass of a CPU overfills a brief window, and then there need not be as many.
    seconds = bench.seconds if bench.kind == "cpu" else bench.brief_seconds
    found = {name: rates(moved, seconds(function)) for name, (moved, function) in patterns.items()}
    best = max(found.values(), key=lambda sample: sample.median)
    return {
        "dram_bytes_per_s": best,
        **{f"dram_pattern_bytes_per_s.{name}": sample for name, sample in found.items()},
    }
