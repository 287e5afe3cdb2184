"""Bytes between host and device, from pinned memory: the link itself, without the copy into a staging buffer."""

from functools import partial

from gobrrr.machine.bench import Bench, Unmeasurable, rates, together
from gobrrr.machine.probes.registry import Samples, probe

SIZE_BYTES = 128 << 20
"""2 ms on the fastest link of today, so that its latency of some microseconds vanishes."""

PLACES = 2
"""Host buffers: which memory node one falls into moves the rate by some percent."""


@probe("host_copies", "host copies")
def host_copies(bench: Bench) -> Samples:
    if bench.kind == "cpu":
        raise Unmeasurable("a CPU computes where its memory is")
    if bench.kind != "cuda":
        raise Unmeasurable(f"nobody has written this probe for {bench.kind}")
    import torch

    size = min(SIZE_BYTES, bench.effort.largest_buffer_bytes)
    there = torch.rand(size // 4, device=bench.device, dtype=torch.float32)
    places = [torch.empty(size // 4, dtype=torch.float32, device="cpu", pin_memory=True) for _ in range(PLACES)]
    back = [bench.brief_seconds(partial(here.copy_, there, non_blocking=True)) for here in places]
    forth = [bench.brief_seconds(partial(there.copy_, here, non_blocking=True)) for here in places]
    return {"h2d_bytes_per_s": rates(size, together(forth)), "d2h_bytes_per_s": rates(size, together(back))}
