"""A step: its kernels on the device's timeline, its ops on the host's, and where the time would go."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gobrrr.diagnose.fusion import groups
from gobrrr.diagnose.residency import Traffic, accesses, residency
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.host import Host, Issued, simulated, waits
from gobrrr.predict.kernels import NO_KERNEL, Kernel, kernel
from gobrrr.predict.spread import Family
from gobrrr.predict.stream import Stream, stream
from gobrrr.work.op import Op, OpClass
from gobrrr.work.work import Work


class Variant(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    GRAPHED = "graphed"
    """Eager kernels, replayed by the device."""
    COMPILED_GRAPHED = "compiled and graphed"

    @property
    def is_compiled(self) -> bool:
        return self in (Variant.COMPILED, Variant.COMPILED_GRAPHED)

    @property
    def is_graphed(self) -> bool:
        return self in (Variant.GRAPHED, Variant.COMPILED_GRAPHED)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one step. Compute, bandwidth and overhead add to `step_s`."""

    step_s: float
    host_s: float
    device_s: float
    compute_s: float
    bandwidth_s: float
    overhead_s: float
    family_s: dict[Family, float]


def step(
    ops: Sequence[Op],
    accelerator: Accelerator,
    host: Host,
    variant: Variant = Variant.EAGER,
    *,
    synchronised: bool = False,
) -> Step:
    issued = compiled(ops, accelerator, host) if variant.is_compiled else eager(ops, accelerator, host)
    if variant.is_graphed:
        issued = [Issued(host.replay_s, NO_KERNEL), *(one._replace(host_s=0.0) for one in issued)]
    return summed(issued, accelerator, synchronised=synchronised)


def eager(ops: Sequence[Op], accelerator: Accelerator, host: Host) -> list[Issued]:
    traffics = residency([accesses(op) for op in ops], accelerator.cache_bytes)
    return [
        Issued(host.op_s(op), kernel(op, traffic, accelerator), waits(op))
        for op, traffic in zip(ops, traffics, strict=True)
    ]


def compiled(ops: Sequence[Op], accelerator: Accelerator, host: Host) -> list[Issued]:
    """One generated kernel a group, and its contractions as they are: a compiler calls the library for those."""
    fused = groups(ops)
    traffics = residency([group.accesses for group in fused], accelerator.cache_bytes)
    issued = [Issued(host.entering_s(ops), NO_KERNEL)]
    for group, traffic in zip(fused, traffics, strict=True):
        members = [ops[index] for index in group.ops]
        issued += [Issued(host.compiled_s, one) for one in group_kernels(members, traffic, accelerator)]
    return issued


def group_kernels(members: Sequence[Op], traffic: Traffic, accelerator: Accelerator) -> list[Kernel]:
    contractions = [op for op in members if op.cls is OpClass.CONTRACTION]
    others = [op for op in members if op.cls is not OpClass.CONTRACTION]
    from_memory = traffic.dram / traffic.bytes if traffic.bytes else 1.0
    found = [kernel(op, _own(op, from_memory), accelerator, compiled=True) for op in contractions]
    if others:
        kind = Stream.GATHER if any(op.cls is OpClass.INDEXING for op in others) else Stream.POINTWISE
        rest = _rest(traffic, contractions, from_memory)
        found.append(Kernel(Family.STREAM, stream(kind, rest, accelerator)))
    return found


def _own(op: Op, from_memory: float) -> Traffic:
    """As much of an op's bytes in the cache as of its group's."""
    work = op.work or Work()
    cached = 1 - from_memory
    return Traffic(
        work.bytes_read * from_memory,
        work.bytes_written * from_memory,
        work.bytes_read * cached,
        work.bytes_written * cached,
    )


def _rest(traffic: Traffic, contractions: Sequence[Op], from_memory: float) -> Traffic:
    """What the generated kernel moves: the group's traffic less the operands of its contractions, and their results."""
    operands = sum(op.work.bytes_read for op in contractions if op.work)
    results = sum(op.work.bytes_written for op in contractions if op.work)
    dram = max(0.0, traffic.dram_read - operands * from_memory) + results * from_memory
    cache = max(0.0, traffic.cache_read - operands * (1 - from_memory)) + results * (1 - from_memory)
    return Traffic(dram, traffic.dram_written, cache, traffic.cache_written)


def summed(issued: Iterable[Issued], accelerator: Accelerator, *, synchronised: bool = False) -> Step:
    issued = list(issued)
    lines = simulated(issued, synchronised=synchronised)
    step_s = lines.host_s + lines.busy_s if accelerator.serial else lines.step_s
    compute = bandwidth = 0.0
    family_s: defaultdict[Family, float] = defaultdict(float)
    for one in issued:
        estimate = one.kernel.estimate
        family_s[one.kernel.family] += estimate.seconds
        work_s = min(estimate.seconds, max(estimate.compute_s, estimate.memory_s))
        if estimate.compute_s >= estimate.memory_s:
            compute += work_s
        else:
            bandwidth += work_s
    family_s[Family.HOST] = max(0.0, step_s - lines.busy_s)
    return Step(step_s, lines.host_s, lines.busy_s, compute, bandwidth, step_s - compute - bandwidth, dict(family_s))
