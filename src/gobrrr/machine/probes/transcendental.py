"""What `cos` and its like cost, in slots of one fp32 multiply-add."""

from collections.abc import Callable
from functools import partial

from gobrrr.machine.bench import Bench, Unmeasurable, slopes
from gobrrr.machine.probes.chains import chain_seconds
from gobrrr.machine.probes.registry import Samples, probe_each, results_of
from gobrrr.stats import Sample

FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh", "erf", "sqrt", "rsqrt", "div", "pow", "random")

GRAIN = 32768
"""Elements below which torch keeps an elementwise op on one thread (`at::internal::GRAIN_SIZE`)."""


@probe_each("cost", FUNCTIONS, "cost of {}")
def cost(bench: Bench, member: str) -> Samples:
    """Seconds of one evaluation over those of one multiply-add slot, 2 / V seconds, on the same machine."""
    rate = _multiply_add_rate(bench)
    seconds = _on_cuda(bench, member, rate) if bench.kind == "cuda" else _on_cpu(bench, member)
    if seconds.median <= 0:
        raise Unmeasurable("it cannot be told from nothing: the machine is busy")
    return {f"transcendental_cost.{member}": Sample(tuple(value * rate / 2 for value in seconds.values))}


def _multiply_add_rate(bench: Bench) -> float:
    if bench.kind not in ("cpu", "cuda"):
        raise Unmeasurable(f"nobody has written this probe for {bench.kind}")
    known = None if bench.known is None else bench.known.vector_flops_per_s.get("fp32")
    if known is not None and "vector.fp32" not in bench.results:
        return known
    return results_of(bench, "vector.fp32")["vector_flops_per_s.fp32"].median


def _on_cuda(bench: Bench, function: str, rate: float) -> Sample:
    """A link of the chain is the function and one multiply-add that keeps its argument in range."""
    link = chain_seconds(bench, function, "fp32")
    return Sample(tuple(value - 2 / rate for value in link.values))


def _on_cpu(bench: Bench, function: str) -> Sample:
    """The slope between half a grain a thread, the least that runs on two threads, and two grains on each.

    Dispatch and the parallel region drop out, and 256 KiB a thread of each operand stay in the core's cache.
    """
    threads = bench.machine.threads
    few, many = (GRAIN + 64, 2 * GRAIN * threads) if threads > 1 else (GRAIN // 2, 2 * GRAIN)
    low, high = (bench.timed(_elementwise(bench, function, elements)) for elements in (few, many))
    more_on_each = 2 * GRAIN - few / min(2, threads)
    return slopes(low, high, more_on_each * threads, bench.effort.brief())


def _elementwise(bench: Bench, function: str, elements: int) -> Callable[[], object]:
    """Arguments between ½ and 1½, where every function is defined and none takes a slow path."""
    import torch

    x, y = (torch.rand(elements, device=bench.device, dtype=torch.float32) + 0.5 for _ in range(2))
    out = torch.empty_like(x)
    if function == "random":
        return out.uniform_
    operands = (x, y) if function in ("div", "pow") else (x,)
    return partial(getattr(torch, function), *operands, out=out)
