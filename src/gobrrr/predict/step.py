"""A step: its kernels on the device's timeline, its ops on the host's, and where the time would go."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from gobrrr.diagnose.fusion import groups
from gobrrr.diagnose.kinds import Kind, kind
from gobrrr.diagnose.residency import Traffic, accesses, likely_residency
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.host import Host, Issued, simulated, training, waits
from gobrrr.predict.kernels import NO_KERNEL, Kernel, kernel
from gobrrr.predict.spread import Family
from gobrrr.predict.stream import Stream, stream
from gobrrr.work.op import Op, OpClass, Phase, TensorRef
from gobrrr.work.work import Work


class Variant(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    GRAPHED = "graphed"
    """Eager kernels, replayed by the device."""
    COMPILED_GRAPHED = "compiled and graphed"

    @classmethod
    def of(cls, *, compiled: bool, graphed: bool) -> "Variant":
        if compiled:
            return cls.COMPILED_GRAPHED if graphed else cls.COMPILED
        return cls.GRAPHED if graphed else cls.EAGER

    @classmethod
    def of_modes(cls, modes: Sequence[str]) -> "Variant":
        """Of a program that calls torch.compile in these modes."""
        graphed = any(mode in ("reduce-overhead", "max-autotune") for mode in modes)
        return cls.of(compiled=bool(modes), graphed=graphed)

    @property
    def is_compiled(self) -> bool:
        return self in (Variant.COMPILED, Variant.COMPILED_GRAPHED)

    @property
    def is_graphed(self) -> bool:
        return self in (Variant.GRAPHED, Variant.COMPILED_GRAPHED)


@dataclass(frozen=True, slots=True)
class Step:
    """Seconds of one step. Compute, bandwidth and overhead add to `step_s`, as an Exam has them: what a kernel takes
    above its floor belongs to its regime, and only latency, that of a kernel with next to nothing to do, is overhead.
    """

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
    traffics = likely_residency([accesses(op) for op in ops], accelerator.cache_bytes)
    trains = training(ops)
    return [
        Issued(host.op_s(op, trains=trains), kernel(op, traffic, accelerator), waits(op))
        for op, traffic in zip(ops, traffics, strict=True)
    ]


def compiled(ops: Sequence[Op], accelerator: Accelerator, host: Host) -> list[Issued]:
    """One generated kernel a group, and its contractions as they are: a compiler calls the library for those.

    The model is compiled and its optimizer is not: `torch.compile(model)` leaves that as it was.
    """
    model = without_unread([op for op in ops if op.phase is not Phase.OPTIMIZER])
    fused = groups(model, flash=False)
    traffics = likely_residency([group.accesses for group in fused], accelerator.cache_bytes)
    issued = [Issued(host.entering_s(model), NO_KERNEL)]
    for group, traffic in zip(fused, traffics, strict=True):
        members = [model[index] for index in group.ops]
        issued += [Issued(host.compiled_s, one) for one in group_kernels(members, traffic, accelerator)]
    return [*issued, *eager([op for op in ops if op.phase is Phase.OPTIMIZER], accelerator, host)]


def without_unread(ops: Sequence[Op]) -> list[Op]:
    """A compiler writes no second result that nobody reads: places of maxima, statistics of norms in inference."""
    read = {ref.storage for op in ops for ref in op.inputs}
    return [_with_outputs(op, (*op.outputs[:1], *(ref for ref in op.outputs[1:] if ref.storage in read))) for op in ops]


def _with_outputs(op: Op, outputs: tuple[TensorRef, ...]) -> Op:
    if outputs == op.outputs or op.work is None:
        return op
    written = sum(ref.nbytes for ref in op.outputs)
    share = sum(ref.nbytes for ref in outputs) / written if written else 1.0
    return replace(op, outputs=outputs, work=replace(op.work, bytes_written=share * op.work.bytes_written))


def group_kernels(members: Sequence[Op], traffic: Traffic, accelerator: Accelerator) -> list[Kernel]:
    contractions = [op for op in members if op.cls is OpClass.CONTRACTION]
    others = [op for op in members if op.cls is not OpClass.CONTRACTION]
    found = [kernel(op, _own(op, traffic.from_memory), accelerator, compiled=True) for op in contractions]
    if others:
        rest = beside_products(traffic, contractions)
        way = _generated(others, rest)
        found.append(Kernel(way.family, stream(way, rest, accelerator)))
    return found


def _generated(ops: Sequence[Op], traffic: Traffic) -> Stream:
    picked = sum(op.work.bytes for op in ops if op.work and _picks(op))
    if 2 * picked > traffic.bytes:
        return Stream.GATHER
    is_rowwise = any(op.cls is OpClass.NORMALIZATION and "batch_norm" not in op.name for op in ops)
    return Stream.ROWWISE if is_rowwise else Stream.POINTWISE


def _picks(op: Op) -> bool:
    """Reads or writes anywhere; a loss and its gradient go row by row."""
    return op.cls is OpClass.INDEXING and kind(op) is not Kind.STREAMS


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


def beside_products(traffic: Traffic, contractions: Sequence[Op]) -> Traffic:
    """What the generated kernel moves: the group's traffic less the operands of its contractions, and their results."""
    from_memory = traffic.from_memory
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
        work_s = estimate.seconds * estimate.working
        if estimate.compute_s >= estimate.memory_s:
            compute += work_s
        else:
            bandwidth += work_s
    family_s[Family.HOST] = max(0.0, step_s - lines.busy_s)
    return Step(step_s, lines.host_s, lines.busy_s, compute, bandwidth, step_s - compute - bandwidth, dict(family_s))
