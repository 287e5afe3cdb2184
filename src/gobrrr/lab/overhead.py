"""What the host costs: Python's additions, PyTorch's dispatch, and where the device has enough to do to hide them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gobrrr import units
from gobrrr.lab.claim import Check, Claim, judged, near, share, untestable
from gobrrr.lab.compiling import compiled
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.knee import knee
from gobrrr.lab.peaks import CLAIMED_MODES
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import NotHere, Site
from gobrrr.machine import Ceilings
from gobrrr.workload import Step

PYTHON_ADDITIONS_PER_S = 32e6
FLOPS_OF_ONE_ADDITION = 9.75e6
SMALL_OPS_PER_S = 280e3


@dataclass(frozen=True, slots=True)
class OpSize:
    """One addition of so many elements, among others alike."""

    elements: int
    seconds: float
    regime: str
    limiter: str | None
    host_s: float | None
    device_s: float | None
    overhead: float | None


@dataclass(frozen=True, slots=True)
class Started:
    """One small op, started in some way."""

    way: str
    seconds: float


@experiment("what does the host cost, and when is it hidden?", "c11", "c12", "c25")
def overhead(site: Site) -> Found:
    ceilings = site.ceilings("matmul", "dispatch", "shortest_kernel", "dram", "cache")
    site.tell("Python's additions")
    additions_per_s = site.sizes.python_additions / site.seconds(lambda: _add(site.sizes.python_additions), "cpu")
    sizes = [_op_size(site, elements) for elements in site.sizes.op_elements]
    ways = _started(site)
    claims = judge(additions_per_s, sizes, ways, ceilings)
    python = Started("one addition in Python", 1 / additions_per_s)
    return Found([*sizes, python, *ways], claims, (_curve(sizes), _SIZES, _WAYS))


def _add(number: int) -> int:
    total = 0
    for _ in range(number):
        total += 1
    return total


def _op_size(site: Site, elements: int) -> OpSize:
    ops = site.sizes.ops
    seen = site.examined(_additions(site, elements), f"additions of {elements} elements")
    return OpSize(
        elements=elements,
        seconds=seen.seconds / ops,
        regime=seen.regime,
        limiter=seen.limiter,
        host_s=None if seen.host_s is None else seen.host_s / ops,
        device_s=None if seen.device_s is None else seen.device_s / ops,
        overhead=seen.overhead,
    )


def _additions(site: Site, elements: int) -> Step:
    import torch

    x, y, out = (torch.rand(elements, device=site.device) for _ in range(3))

    def step() -> None:
        for _ in range(site.sizes.ops):
            torch.add(x, y, out=out)

    return step


def _started(site: Site) -> list[Started]:
    """The smallest additions: eager, in a CUDA graph, compiled into one kernel."""
    step = _additions(site, site.sizes.op_elements[0])
    site.tell("small ops, eager")
    ways = [Started("eager", site.seconds(step) / site.sizes.ops)]
    if site.is_cuda:
        from gobrrr.machine.probes.graphs import captured

        site.tell("small ops in a CUDA graph")
        ways.append(Started("CUDA graph", site.seconds(captured(step, copies=1).replay) / site.sizes.ops))
    try:
        site.tell("small ops, compiled")
        ways.append(Started("compiled", site.seconds(_compiled_additions(site)) / site.sizes.ops))
    except NotHere:  # the graph tells enough
        return ways
    return ways


def _compiled_additions(site: Site) -> Step:
    import torch

    x, y = (torch.rand(site.sizes.op_elements[0], device=site.device) for _ in range(2))

    def function(x: Any, y: Any) -> Any:
        for _ in range(site.sizes.ops):
            x = x + y
        return x

    return compiled(function, x, y)


def judge(
    additions_per_s: float, sizes: Sequence[OpSize], ways: Sequence[Started], ceilings: Ceilings
) -> tuple[Claim, ...]:
    return (_rates(additions_per_s, ceilings), _hidden(sizes, serial=ceilings.kind == "cpu"), _removed(ways, ceilings))


def _rates(additions_per_s: float, ceilings: Ceilings) -> Claim:
    matrix = max((ceilings.matmul_flops_per_s.get(mode, 0.0) for mode in CLAIMED_MODES), default=0.0) or None
    worth = None if matrix is None else matrix / additions_per_s
    ops_per_s = 1 / ceilings.dispatch_s if ceilings.dispatch_s else None
    return judged(
        "c11",
        f"{units.count(additions_per_s)} additions/s, worth {units.flops(worth)} each; "
        f"{units.count(ops_per_s)} small ops/s",
        [
            near("Python's additions/s, against 32 M", additions_per_s, PYTHON_ADDITIONS_PER_S, 2),
            near("FLOPs of the device in one of them, against 9.75 M", worth, FLOPS_OF_ONE_ADDITION, 3),
            near("small ops/s, against 280 k", ops_per_s, SMALL_OPS_PER_S, 2),
        ],
        f"an eager op keeps the host for {units.seconds(ceilings.dispatch_s)}, and the device does "
        f"{units.flops_per_s(matrix)} at most",
    )


def _hidden(sizes: Sequence[OpSize], *, serial: bool) -> Claim:
    """The host stays ahead if a step takes as long as the slower of the two, not as long as both together."""
    found = knee([size.elements for size in sizes], [size.seconds for size in sizes])
    measured = (
        f"an addition costs {units.seconds(sizes[0].seconds)} at the least; knee at {units.count(found)} elements"
    )
    if serial:
        reason = "host and device are one here: an op has run before the next is asked for, and nothing hides"
        return untestable("c12", reason, measured)
    apart = [size.seconds / max(size.host_s, size.device_s) for size in sizes if size.host_s and size.device_s]
    return judged(
        "c12",
        measured,
        [
            share("the smallest op, limited by the host", [sizes[0].limiter == "host"]),
            share("the largest op, limited by the device", [sizes[-1].limiter == "device"]),
            Check("step over the slower of host and device, at worst", max(apart) if apart else None, high=1.2),
            Check("overhead left in the largest op's time", sizes[-1].overhead, high=0.1),
        ],
        f"the host asks for an op every {units.seconds(sizes[0].host_s)}; beyond the knee the device takes longer, "
        f"and overhead falls from {units.percent(sizes[0].overhead, 0)} to {units.percent(sizes[-1].overhead, 0)}",
    )


def _removed(ways: Sequence[Started], ceilings: Ceilings) -> Claim:
    seconds = {way.way: way.seconds for way in ways}
    said = ", ".join(f"{way} {units.seconds(taken)}" for way, taken in seconds.items())
    graph, shortest = seconds.get("CUDA graph"), ceilings.shortest_kernel_class_s.get("elementwise")
    if graph is None:
        reason = "there is no CUDA graph without CUDA; the compiled ops are one kernel and pay for one start"
        return untestable("c25", reason, said)
    return judged(
        "c25",
        f"a small op: {said}",
        [
            Check("eager over graph", seconds["eager"] / graph, low=3),
            Check("graph over the shortest kernel", graph / shortest if shortest else None, high=2),
        ],
        f"the graph leaves the kernels, {units.seconds(shortest)} each at the shortest, and takes the host's "
        f"{units.seconds(ceilings.dispatch_s)} away",
    )


def _curve(sizes: Sequence[OpSize]) -> Drawing:
    found = knee([size.elements for size in sizes], [size.seconds for size in sizes])
    return Drawing(
        "curve",
        "one addition among many",
        Column("elements", "elements", ""),
        Column("seconds", "time", "s"),
        marks=None if found is None else {"knee": found},
    )


_SIZES = Drawing(
    "bars",
    "how much of it is overhead",
    Column("elements", "elements", ""),
    Column("overhead", "overhead", "%"),
    (
        Column("seconds", "time", "s"),
        Column("host_s", "host", "s"),
        Column("device_s", "device", "s"),
        Column("limiter", "limiter"),
        Column("regime", "regime"),
    ),
)
_WAYS = Drawing("bars", "an addition in Python and of tensors", Column("way", "way"), Column("seconds", "time", "s"))
