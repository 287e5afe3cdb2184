"""k: the least time that a kernel takes, however little it does."""

from collections.abc import Callable
from functools import partial

from gobrrr.machine.bench import Bench, Unmeasurable, side_by_side, together
from gobrrr.machine.probes.graphs import captured
from gobrrr.machine.probes.registry import Samples, probe
from gobrrr.machine.probes.transcendental import GRAIN
from gobrrr.stats import Sample

CLASSES = ("elementwise", "reduction", "gemm", "attention")

COPIES = 200
"""Kernels in one graph: the gap between two replays, a few microseconds, is spread over as many."""

GRAPHS = 2


@probe("shortest_kernel", "shortest kernel")
def shortest_kernel(bench: Bench) -> Samples:
    if bench.kind == "cpu":
        region = _parallel_region(bench)
        found = dict.fromkeys(CLASSES, region)
    elif bench.kind == "cuda":
        found = {name: _graphed_seconds(bench, op) for name, op in _smallest_ops(bench).items()}
    else:
        raise Unmeasurable(f"nobody has written this probe for {bench.kind}")
    least = min(found.values(), key=lambda sample: sample.median)
    return {
        "shortest_kernel_s": least,
        **{f"shortest_kernel_class_s.{name}": sample for name, sample in found.items()},
    }


def _graphed_seconds(bench: Bench, function: Callable[[], object]) -> Sample:
    """Over several graphs: where its kernels lie in memory moves a graph's pace by a few percent."""
    graphs = [captured(function, COPIES) for _ in range(GRAPHS)]
    replays = together(bench.brief_seconds(graph.replay) for graph in graphs)
    return Sample(tuple(value / COPIES for value in replays.values))


def _smallest_ops(bench: Bench) -> dict[str, Callable[[], object]]:
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    x = torch.rand(32, device=bench.device, dtype=torch.float32)
    total = torch.empty((), device=bench.device, dtype=torch.float32)
    a = torch.rand(16, 16, device=bench.device, dtype=torch.float16)
    q = torch.rand(1, 1, 16, 64, device=bench.device, dtype=torch.float16)
    return {
        "elementwise": partial(torch.add, x, x, out=torch.empty_like(x)),
        "reduction": partial(torch.sum, x, 0, out=total),
        "gemm": partial(torch.mm, a, a, out=torch.empty_like(a)),
        "attention": partial(scaled_dot_product_attention, q, q, q),
    }


def _parallel_region(bench: Bench) -> Sample:
    """What it costs to wake the other threads and wait for them; nothing on one thread.

    An op of exactly a grain runs on one thread: t = c + w, with c the dispatch and w the work. One of a few
    elements more runs on two: t' = c + w/2 + region. Hence region = (t' - c) - (t - c)/2, which noise may
    push below 0 and truth cannot.
    """
    if bench.machine.threads == 1:
        return Sample((0.0,))
    ops = [bench.timed(_addition(bench, elements)) for elements in (1, GRAIN, GRAIN + 64)]
    windows = side_by_side(ops, bench.effort.brief())
    return Sample(tuple(region_s(*seconds) for seconds in windows))


def region_s(tiny_s: float, serial_s: float, parallel_s: float) -> float:
    return max(0.0, (parallel_s - tiny_s) - (serial_s - tiny_s) / 2)


def _addition(bench: Bench, elements: int) -> Callable[[], object]:
    import torch

    a, b = (torch.rand(elements, device=bench.device, dtype=torch.float32) for _ in range(2))
    return partial(torch.add, a, b, out=torch.empty_like(a))
