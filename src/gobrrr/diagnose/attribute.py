"""Attribution: each kernel's seconds of the step, split into what was attained, latency and inefficiency."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from gobrrr.diagnose.floor import Floor, Split, op_floors, split
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import Exam
from gobrrr.machine.ceilings import Ceilings
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.work.op import OpClass

BUSY = 1.05
"""Busy time over step time up to which noise explains it; beyond, the reader is warned."""

TOO_BUSY = 1.2
"""Busy time over step time beyond which the two measurements do not belong together, and no share is given."""


@dataclass(frozen=True, slots=True)
class Attributed:
    """A kernel with its seconds of the step and where they went; the parts are None where its floor is unknown."""

    kernel: Kernel
    seconds: float
    floor: Floor | None
    parts: Split | None

    @property
    def regime(self) -> Regime:
        if self.kernel.kind is KernelKind.TRANSFER:
            return Regime.OVERHEAD
        if self.kernel.kind is KernelKind.COMMUNICATION:
            return Regime.COMMUNICATION
        return Regime.UNCOUNTED if self.floor is None else self.floor.regime


def attribute(exam: Exam) -> tuple[list[Attributed], float]:
    """All kernels, and by how much their busy time was scaled down to fit into the step; 1 if it did."""
    seconds = [kernel.seconds for kernel in exam.kernels] if exam.serial else shared_seconds(exam.kernels)
    scale = max(1.0, sum(seconds) / exam.step_s) if exam.step_s else 1.0
    floors = _floors(exam)
    return [
        _attributed(kernel, own / scale, floor, exam.ceilings)
        for kernel, own, floor in zip(exam.kernels, seconds, floors, strict=True)
    ], scale


def _attributed(kernel: Kernel, seconds: float, floor: Floor | None, ceilings: Ceilings) -> Attributed:
    if floor is None or kernel.kind is not KernelKind.COMPUTE:
        return Attributed(kernel, seconds, floor, None)
    return Attributed(kernel, seconds, floor, split(seconds, floor.seconds, shortest_s(kernel, ceilings)))


def shortest_s(kernel: Kernel, ceilings: Ceilings) -> float:
    """The shortest kernel of its class; where none was measured, no time is called latency."""
    name = {OpClass.CONTRACTION: "gemm", OpClass.NORMALIZATION: "reduction"}.get(kernel.cls, "elementwise")
    if kernel.cls is OpClass.CONTRACTION and any(word in kernel.name for word in ("attention", "flash", "fmha")):
        name = "attention"
    return ceilings.shortest_kernel_class_s.get(name, 0.0)


def _floors(exam: Exam) -> list[Floor | None]:
    """Of a kernel that does an op alone, the op's; of several that do one together, a share of it by time."""
    if exam.program is None:
        return [None] * len(exam.kernels)
    by_op = op_floors(exam.program.ops, exam.ceilings)
    together: dict[tuple[int, ...], float] = defaultdict(float)
    for kernel in exam.kernels:
        together[kernel.fused_from or ()] += kernel.seconds
    return [_share(by_op, kernel, together[kernel.fused_from or ()]) for kernel in exam.kernels]


def _share(by_op: Sequence[Floor | None], kernel: Kernel, together_s: float) -> Floor | None:
    if kernel.fused_from is None or len(kernel.fused_from) != 1:
        return None
    whole = by_op[kernel.fused_from[0]]
    if whole is None:
        return None
    share = kernel.seconds / together_s if together_s else 1.0
    return Floor(whole.seconds * share, whole.regime, whole.level)


def shared_seconds(kernels: Sequence[Kernel]) -> list[float]:
    """On several streams each instant is shared equally among the compute kernels that run in it.

    Communication and transfers have only the instants in which no compute kernel runs. The sum is the busy time.
    """
    moments = sorted({moment for kernel in kernels for moment in (kernel.start_s, kernel.start_s + kernel.seconds)})
    starting: dict[float, list[int]] = defaultdict(list)
    for index, kernel in enumerate(kernels):
        starting[kernel.start_s].append(index)
    seconds = [0.0] * len(kernels)
    running: set[int] = set()
    for moment, following in pairwise(moments):
        running.update(starting[moment])
        running = {index for index in running if kernels[index].start_s + kernels[index].seconds > moment}
        computing = {index for index in running if kernels[index].kind is KernelKind.COMPUTE}
        holders = computing or running
        for index in holders:
            seconds[index] += (following - moment) / len(holders)
    return seconds


def queued_gaps_s(kernels: Sequence[Kernel], gap_before_s: float | None) -> float:
    """Gaps on the device before kernels that had already been asked for: its own doing, not the host's.

    Kernels of one launch are a graph's: all but the first were asked for with it, even if that call returned later.
    """
    ordered = sorted(kernels, key=lambda kernel: kernel.start_s)
    free_from_s = ordered[0].start_s - (gap_before_s or 0.0) if ordered else 0.0
    gaps_s = 0.0
    launches: set[float | None] = set()
    for kernel in ordered:
        queued = kernel.launched_s is None or kernel.launched_s <= free_from_s or kernel.launched_s in launches
        gaps_s += max(0.0, kernel.start_s - free_from_s) if queued else 0.0
        launches.add(kernel.launched_s)
        free_from_s = max(free_from_s, kernel.start_s + kernel.seconds)
    return gaps_s


def regime_seconds(kernels: Iterable[Attributed], idle_s: float = 0.0) -> dict[str, float]:
    """Seconds by regime: attained and inefficient to the op's own, latency and idle to overhead."""
    seconds = dict.fromkeys((regime.value for regime in Regime), 0.0)
    seconds[Regime.OVERHEAD] += idle_s
    for one in kernels:
        if one.parts is None:
            seconds[one.regime] += one.seconds
        else:
            seconds[one.regime] += one.parts.attained + one.parts.inefficient
            seconds[Regime.OVERHEAD] += one.parts.latency
    return seconds
