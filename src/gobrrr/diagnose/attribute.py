"""Attribution: each kernel's seconds of the step, split into what was attained, latency and inefficiency."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from gobrrr.diagnose.floor import Floor, Split, op_floors, split
from gobrrr.diagnose.gaps import device_gaps
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import Exam
from gobrrr.machine.ceilings import Ceilings
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.work.op import Op, OpClass
from gobrrr.work.work import Work

BUSY = 1.05
"""Busy time over step time up to which noise explains it; beyond, the reader is warned."""

TOO_BUSY = 1.2
"""Busy time over step time beyond which the two measurements do not belong together, and no share is given."""

MOST_UNKNOWN = 0.01
"""Of busy time, in kernels without a floor, up to which the floors of the rest are given as the floor of all."""


@dataclass(frozen=True, slots=True)
class Attributed:
    """A kernel with its seconds of the step and where they went; the parts are None where its floor is unknown."""

    kernel: Kernel
    op: Op | None
    """The one that launched it; None if it could not be linked."""
    share: float
    """Of its op's time, and so of the op's Work and floor: several kernels may do one op."""
    seconds: float
    floor: Floor | None
    parts: Split | None
    work: Work | None = None
    """Its share of the op's."""

    @property
    def cls(self) -> OpClass:
        return OpClass.OTHER if self.op is None else self.op.cls

    @property
    def module(self) -> str:
        return "" if self.op is None else self.op.module

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
    floors = op_floors(exam.ran, exam.ceilings)
    indices = [exam.index(kernel) for kernel in exam.kernels]
    return [
        _attributed(
            kernel,
            None if index is None else exam.ran[index],
            share,
            own / scale,
            None if index is None else floors[index],
            exam.ceilings,
        )
        for kernel, index, share, own in zip(exam.kernels, indices, _shares(exam, indices), seconds, strict=True)
    ], scale


def _attributed(
    kernel: Kernel, op: Op | None, share: float, seconds: float, whole: Floor | None, ceilings: Ceilings
) -> Attributed:
    floor = whole if whole is None or share == 1 else Floor(whole.seconds * share, whole.regime, whole.level)
    work = None if op is None or op.work is None else op.work.scaled(share)
    if floor is None or kernel.kind is not KernelKind.COMPUTE:
        return Attributed(kernel, op, share, seconds, floor, None, work)
    shortest = shortest_s(kernel, OpClass.OTHER if op is None else op.cls, ceilings)
    return Attributed(kernel, op, share, seconds, floor, split(seconds, floor.seconds, shortest), work)


def shortest_s(kernel: Kernel, cls: OpClass, ceilings: Ceilings) -> float:
    """The shortest kernel of its class; where none was measured, no time is called latency."""
    name = {OpClass.CONTRACTION: "gemm", OpClass.NORMALIZATION: "reduction"}.get(cls, "elementwise")
    if cls is OpClass.CONTRACTION and any(word in kernel.name for word in ("attention", "flash", "fmha")):
        name = "attention"
    return ceilings.shortest_kernel_class_s.get(name, 0.0)


def _shares(exam: Exam, indices: Sequence[int | None]) -> list[float]:
    """Of its op's time, for each kernel."""
    together_s: dict[int | None, float] = defaultdict(float)
    for kernel, index in zip(exam.kernels, indices, strict=True):
        together_s[index] += kernel.seconds
    return [
        kernel.seconds / together_s[index] if together_s[index] else 1.0
        for kernel, index in zip(exam.kernels, indices, strict=True)
    ]


def shared_seconds(kernels: Sequence[Kernel]) -> list[float]:
    """On several streams each instant is shared equally among the compute kernels that run in it.

    Communication and transfers have only the instants in which no compute kernel runs. The sum is the busy time. What
    one kernel of a sort gets is the same for all that run, so it is summed up once, and read off at start and end.
    """
    moments = sorted(
        (
            (moment, index, change)
            for index, kernel in enumerate(kernels)
            for moment, change in ((kernel.start_s, 1), (kernel.start_s + kernel.seconds, -1))
        ),
        key=itemgetter(0),
    )
    running, each_s = {True: 0, False: 0}, {True: 0.0, False: 0.0}  # by whether they compute
    seconds, before_s = [0.0] * len(kernels), 0.0
    for moment_s, index, change in moments:
        computing = running[True] > 0
        if running[computing]:
            each_s[computing] += (moment_s - before_s) / running[computing]
        computes = kernels[index].kind is KernelKind.COMPUTE
        running[computes] += change
        seconds[index] -= change * each_s[computes]
        before_s = moment_s
    return seconds


def floor_together(parts: Sequence[tuple[float, float | None]]) -> float | None:
    """The floors' sum of parts that take so many seconds each.

    None if more than `MOST_UNKNOWN` of their time is in parts without one: it would be compared with the time of all.
    """
    unknown_s = sum(seconds for seconds, floor_s in parts if floor_s is None)
    if not parts or unknown_s > MOST_UNKNOWN * sum(seconds for seconds, _ in parts):
        return None
    return sum(floor_s for _, floor_s in parts if floor_s is not None)


def as_run_floor_s(kernels: Iterable[Attributed]) -> float | None:
    """Of kernels one after the other; communication and transfers have none to be compared with."""
    return floor_together(
        [
            (one.seconds, None if one.floor is None else one.floor.seconds)
            for one in kernels
            if one.floor is not None or one.kernel.kind is KernelKind.COMPUTE
        ]
    )


def queued_gaps_s(kernels: Sequence[Kernel], gap_before_s: float | None) -> float:
    """Gaps on the device before kernels that had already been asked for: its own doing, not the host's."""
    return sum(gap.seconds for gap in device_gaps(kernels, gap_before_s) if gap.queued)


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
