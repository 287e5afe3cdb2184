"""W2: bytes to and from the last-level cache."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gobrrr.machine.bench import Bench, Unmeasurable, rates, together
from gobrrr.machine.probes.graphs import captured
from gobrrr.machine.probes.registry import Samples, probe
from gobrrr.stats import Sample

if TYPE_CHECKING:
    import torch

WORKING_SET = 0.4
"""Of the cache: what was touched within half a cache of traffic is charged at this rate, and a little less
leaves room for whatever else the cache must hold."""

PLACES = 3

COPIES = 200
"""Calls in one CUDA graph: launching it costs a few of the microseconds that each of them takes."""


@probe("cache", "cache bandwidth")
def cache(bench: Bench) -> Samples:
    """The better of one read or two to each write, over buffers that stay in the cache from one pass to the next."""
    if bench.machine.cache_bytes is None:
        raise Unmeasurable("the size of its cache is unknown")
    found = [_everywhere(bench, 2, _one_read), _everywhere(bench, 3, _two_reads)]
    return {"cache_bytes_per_s": max(found, key=lambda sample: sample.median)}


def _everywhere(bench: Bench, number: int, rate: "Callable[[Bench, list[torch.Tensor]], Sample]") -> Sample:
    """In several places of memory: which slices of the cache a buffer falls into moves the rate by some percent."""
    places = [_buffers(bench, number) for _ in range(PLACES)]
    return together(rate(bench, buffers) for buffers in places)


def _one_read(bench: Bench, buffers: "list[torch.Tensor]") -> Sample:
    import torch

    source, target = buffers
    return _rate(bench, partial(torch.neg, source, out=target), 2 * source.nbytes)


def _two_reads(bench: Bench, buffers: "list[torch.Tensor]") -> Sample:
    import torch

    a, b, c = buffers
    return _rate(bench, partial(torch.add, a, b, out=c), 3 * a.nbytes)


def _rate(bench: Bench, function: Callable[[], object], moved: int) -> Sample:
    if bench.kind != "cuda":
        return rates(moved, bench.brief_seconds(function))
    graph = captured(function, COPIES)
    return rates(COPIES * moved, bench.brief_seconds(graph.replay))


def _buffers(bench: Bench, number: int) -> "list[torch.Tensor]":
    import torch

    elements = int(WORKING_SET * (bench.machine.cache_bytes or 0) / number) // 4
    return [torch.rand(elements, device=bench.device, dtype=torch.float32) for _ in range(number)]
