"""c: what one eager op costs the host, with and without autograd, and what replaying a graph does."""

from functools import partial

from gobrrr.machine.bench import Bench, Unmeasurable
from gobrrr.machine.probes.graphs import captured
from gobrrr.machine.probes.registry import Samples, probe


@probe("dispatch", "dispatch", strewn=True)
def dispatch(bench: Bench) -> Samples:
    """A small addition, the op with the least in it: Python, dispatcher, allocator, launch.

    With a gradient asked for, autograd wraps the dispatch and makes a node, which is freed at once.
    """
    import torch

    x, y = (torch.rand(1, device=bench.device, dtype=torch.float32) for _ in range(2))
    leaf = torch.rand(1, device=bench.device, dtype=torch.float32, requires_grad=True)
    plain = bench.host_seconds(partial(torch.add, x, y))
    with torch.enable_grad():
        recorded = bench.host_seconds(partial(torch.add, leaf, y))
    return {"dispatch_s": plain, "dispatch_autograd_s": recorded}


@probe("graph_replay", "graph replay", strewn=True)
def graph_replay(bench: Bench) -> Samples:
    """A graph of one kernel: what is left of the host's work when no op is dispatched any more."""
    if bench.kind != "cuda":
        raise Unmeasurable("only CUDA graphs are replayed")
    import torch

    x = torch.rand(1, device=bench.device, dtype=torch.float32)
    graph = captured(partial(torch.add, x, x, out=torch.empty_like(x)), copies=1)
    return {"graph_replay_s": bench.host_seconds(graph.replay)}
