"""An Exam: everything observed in one run, as plain data. The hinge between measuring and diagnosing.

A live run and a recorded trace fill the same structure; what one of them cannot know is None. All times are seconds of
one step, and those of `kernels` count from the step's first moment. No torch here: an Exam made on a GPU machine is
diagnosed and shown anywhere.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from gobrrr.bounds import refuse_impossible
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.doubts import Doubt
from gobrrr.stats import Interval, Sample
from gobrrr.timing.kernel import Kernel, Sync
from gobrrr.work.compiler_events import Compilation
from gobrrr.work.op import Op
from gobrrr.work.program import Program


@dataclass(frozen=True, slots=True)
class Quality:
    """How much of what was seen could be used."""

    linked_share: float | None
    """Of busy time, in kernels that were linked to ops of the program."""
    steady: bool
    growing: bool
    warnings: tuple[str, ...] = ()
    shapes_share: float | None = None
    """Of busy time, in kernels whose ops have recorded shapes. This and what follows is known of traces only."""
    graph_share: float | None = None
    """Of busy time, in kernels that a graph launched."""
    steps_found_by: str | None = None
    """`annotation`, `period` of launches, or `whole` where none were found."""


@dataclass(frozen=True, slots=True)
class BatchTest:
    """The step beside the same with twice the batch."""

    pairs_s: tuple[tuple[float, float], ...]
    """Seconds of a step as it is and with twice the batch, once for each pair of windows."""
    doubled_bytes: float | None
    """What the step with twice the batch must move."""
    problem: str | None = None
    """Why there are no times: one sentence on what to change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exam:
    SCHEMA: ClassVar[str] = "exam"
    VERSION: ClassVar[int] = 1

    target: str
    made_at: str
    """ISO 8601, UTC."""
    device: str
    serial: bool
    """Host and device are one, as on a CPU: their times add instead of overlapping."""
    ceilings: Ceilings
    ceilings_from: str
    """`measured`, or where else they come from."""
    window_step_s: tuple[float, ...]
    """Step time of each window, without a profiler: N steps back to back and one synchronisation, over N."""
    steps: int
    step_s_method: str
    step_profiled_s: float | None
    """The same under the full profiler, to show what that costs."""
    host_s: float | None
    """What the host needs for a step: its wall time less what it spent waiting for the device."""
    kernels: tuple[Kernel, ...]
    program: Program | None
    syncs: tuple[Sync, ...] | None
    peak_memory_bytes: int | None
    gpu_util_percent: float | None
    """Median while the step was timed, as the three below."""
    quality: Quality
    dispatched: tuple[Op, ...] = ()
    """What a compiler made of the program: ops that remained and kernels that it generated. Empty without one. Of a
    trace, the ops as they were recorded."""
    step_interval_s: tuple[float, float] | None = None
    """Low and high of the step time where windows do not say it, as of a trace: from what recording may have cost."""
    gpu_clock_hz: float | None = None
    gpu_power_w: float | None = None
    gpu_memory_bytes: float | None = None
    gap_before_s: float | None = None
    """In which the device was idle between the step before and the first kernel."""
    idle: Mapping[str, float] | None = None
    """Idle time by cause, as fractions of it."""
    batch_test: BatchTest | None = None
    compilation: Compilation | None = None
    """Until the step was timed; None where nothing was compiled."""
    allocation_retries: int | None = None
    """How often the allocator found no memory and gave back what it had kept, until the step was timed."""
    padding: float | None = None
    """Of the tokens, as fraction: those that the inputs' mask marks as none."""
    device_doubts: tuple[Doubt, ...] = ()
    """What was wrong with the device while the step was timed."""
    step_period: int = 1
    """Rounds that a step is made of before it repeats: backward passes, as with accumulated gradients or several
    optimizers, or calls of the model where nothing is trained."""

    def __post_init__(self) -> None:
        """An Exam is a file, and files come from strangers."""
        refuse_impossible(self)

    @property
    def ran(self) -> tuple[Op, ...]:
        """The ops that were dispatched."""
        return self.dispatched or (() if self.program is None else self.program.ops)

    def index(self, kernel: Kernel) -> int | None:
        """Of the op among those that ran which launched the kernel; in the first Exams that was the one it is from."""
        alone = kernel.fused_from[0] if kernel.fused_from and len(kernel.fused_from) == 1 else None
        index = alone if kernel.op is None and not self.dispatched else kernel.op
        return index if index in range(len(self.ran)) else None

    @property
    def step_s(self) -> float:
        return Sample(self.window_step_s).median

    @property
    def step_interval(self) -> Interval:
        if self.step_interval_s is not None:
            return Interval(*self.step_interval_s)
        return Sample(self.window_step_s).interval()
