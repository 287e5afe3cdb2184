"""The examination: from a workload to an Exam. The user's objects are afterwards as they were."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from gobrrr import units
from gobrrr.errors import CannotDecide, Missing, ProgramFailed, UsageError
from gobrrr.exam import BatchTest, Exam, Quality
from gobrrr.machine import Ceilings, identify, measured
from gobrrr.machine.allocator import allocation_retries
from gobrrr.machine.doubts import gpu_doubts
from gobrrr.machine.gpu_state import GpuUse, gpu_state, gpu_use
from gobrrr.machine.probes import PROBES
from gobrrr.machine.sampling import middle, sampling
from gobrrr.timing.batch import alternating_windows, doubled
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.kernel import Kernel
from gobrrr.timing.recordings import Recordings, record
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, StepEffort, StepTimes, Trend, time_steps
from gobrrr.work import compiler_events
from gobrrr.work.compiler_events import Mark
from gobrrr.work.lineage import Dispatched, as_written, traced
from gobrrr.work.padding import padding_share
from gobrrr.work.placement import one_device
from gobrrr.work.program import Program
from gobrrr.work.signature import change, changed, known_work
from gobrrr.workload import Step, Workload, made_step, user_code

Progress = Callable[[int, int, str], None]

MOST_CHANGE = 0.05
"""Of the work from step to step: within, as when a router sends a few tokens elsewhere, the numbers hold as well as
times do, and a warning is enough."""

MOSTLY_LINKED = 0.9
"""Of busy time: with less of it linked to ops, what is missing may be what matters."""


def examine(
    factory: Callable[[], Any],
    target: str,
    progress: Progress = lambda _number, _total, _what: None,
    *,
    batch_test: bool = False,
    effort: StepEffort | None = None,
) -> Exam:
    """Counts a step, times it without a profiler, then records it with one, and puts everything back.

    The batch test comes last: if twice the batch cannot be run, the Exam says why and holds all the rest.
    """
    stages, started = 6 if batch_test else 5, compiler_events.mark()
    progress(1, stages, "building the workload")
    step, workload = made_step(factory)
    if batch_test and workload is None:
        raise UsageError("a bare step has no batch that could be doubled: return a gobrrr.Workload(model, inputs)")
    with preserved(workload or step) as kept:
        progress(2, stages, "counting a step")
        counted = _counted(step)
        clock = DeviceClock(one_device(counted.program.ops))
        varies = _varies(counted.program, step)
        progress(3, stages, "measuring the ceilings it needs")
        ceilings = measured(clock.device, only=needed_probes(counted.program))
        progress(4, stages, "timing the step")
        effort = effort or (CPU_STEP_EFFORT if clock.device == "cpu" else CUDA_STEP_EFFORT)
        retries = allocation_retries(clock.device)
        times, uses = _times(step, clock, effort)
        noticed = _noticed(clock.device, workload, started, retries)
        progress(5, stages, "recording a few steps")
        exam = _exam(target, clock.device, counted, ceilings, times, record(step, clock, times.step_s))
        exam = replace(_used(exam, uses), **noticed)
        exam = _warned(exam, [*kept.warnings, varies or _varies(counted.program, step)])
        if batch_test and workload is not None:
            progress(6, stages, "timing twice the batch")
            exam = replace(exam, batch_test=_batch_test(workload, clock, effort, times.window_steps))
        return exam


@dataclass(frozen=True, slots=True)
class Counted:
    """What a step asks for, and what is dispatched of it."""

    program: Program
    compiled: Program | None
    """The same after compilation; None if nothing is compiled."""
    ran: Dispatched


def _counted(step: Step) -> Counted:
    from gobrrr.work.counter import dispatched_program

    program = _program(step, "the step")
    compiled = dispatched_program(lambda: user_code(step, "the step"))
    ran = as_written(program.ops) if compiled is None else traced(program.ops, compiled.ops)
    return Counted(program, compiled, ran)


def _program(step: Step, what: str) -> Program:
    """Of the second step: the first makes what lives on, such as the optimizer's state."""
    from gobrrr.work.counter import counted_program

    user_code(step, what)
    return counted_program(lambda: user_code(step, what))


def _varies(program: Program, step: Step) -> str | None:
    """What a step does otherwise than the counted one, if that is little; if it is much, no number would hold."""
    from gobrrr.work.counter import counted_program

    again = counted_program(lambda: user_code(step, "the step"))
    sentence = changed(program, again)
    if sentence is not None and change(program, again) > MOST_CHANGE:
        raise CannotDecide(sentence)
    return sentence


def needed_probes(program: Program) -> list[str]:
    """The ceilings that this program's floors are made of, and no others.

    What no probe measures, as products of integers, has no ceiling, and what is made of it no floor.
    """
    wanted = dict.fromkeys(("dram", "cache", "shortest_kernel", "dispatch", *_arithmetic_probes(program)))
    return [name for name in wanted if name in PROBES]


def _arithmetic_probes(program: Program) -> Iterator[str]:
    for op in program.ops:
        if op.work is not None:
            yield from (f"matmul.{mode}" for mode in op.work.matrix)
            if "fp32" in op.work.matrix and op.device != "cpu":
                yield "matmul.tf32"
            for arithmetic, functions in op.work.vector.items():
                yield f"vector.{arithmetic}"
                yield from (f"cost.{function}" for function in functions if function != "fma")


def _times(step: Step, clock: DeviceClock, effort: StepEffort) -> tuple[StepTimes, list[GpuUse]]:
    """The step timed, and how the GPU was used meanwhile: samples of the stages before the last are dropped."""
    uuid = identify(clock.device).uuid
    with sampling(lambda: gpu_use(uuid)) as uses:
        times = user_code(lambda: time_steps(step, clock, effort, progress=lambda *_: uses.clear()), "the step")
    return times, uses


def _exam(
    target: str, device: str, counted: Counted, ceilings: Ceilings, times: StepTimes, recordings: Recordings
) -> Exam:
    kernels = recordings.kernels(counted.ran, ceilings, times.step_s)
    linked = _linked_share(kernels)
    idle_s = times.step_s - sum(kernel.seconds for kernel in kernels)
    return Exam(
        target=target,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=device,
        serial=device == "cpu",
        ceilings=ceilings,
        ceilings_from="measured",
        window_step_s=times.windows.values,
        steps=len(times.windows.values) * times.window_steps,
        step_s_method="windows",
        step_profiled_s=recordings.step_profiled_s,
        host_s=recordings.host_s(times.step_s),
        kernels=kernels,
        program=counted.program,
        dispatched=() if counted.compiled is None else counted.ran.ops,
        syncs=recordings.syncs,
        peak_memory_bytes=(counted.compiled or counted.program).memory.peak_bytes,
        gpu_util_percent=None,
        quality=Quality(
            linked_share=linked,
            steady=times.warm_up.is_steady,
            growing=times.trend is Trend.GROWS,
            warnings=(*times.doubts, *_unlinked(linked)),
        ),
        gap_before_s=recordings.gap_before_s,
        idle=recordings.idle(len(counted.ran.ops), ceilings, idle_s),
    )


def _noticed(device: str, workload: Workload | None, started: Mark, retries_before: int | None) -> dict[str, Any]:
    """What stands beside the times, asked for before a recording changes it."""
    retries, uuid = allocation_retries(device), identify(device).uuid
    state = None if uuid is None else gpu_state(uuid)
    return {
        "compilation": compiler_events.since(started),
        "allocation_retries": None if retries is None else retries - (retries_before or 0),
        "padding": None if workload is None else padding_share(workload.inputs),
        "device_doubts": () if state is None else tuple(gpu_doubts([state])),
    }


def _linked_share(kernels: tuple[Kernel, ...]) -> float | None:
    busy_s = sum(kernel.seconds for kernel in kernels)
    linked_s = sum(kernel.seconds for kernel in kernels if kernel.fused_from is not None)
    return linked_s / busy_s if busy_s else None


def _unlinked(linked_share: float | None) -> tuple[str, ...]:
    if linked_share is None or linked_share >= MOSTLY_LINKED:
        return ()
    unlinked = units.percent(1 - linked_share, 0)
    return (
        f"{unlinked} of busy time, as of a CUDA graph captured beforehand, has no op that launched it: not counted",
    )


def _used(exam: Exam, uses: list[GpuUse]) -> Exam:
    return replace(
        exam,
        gpu_util_percent=middle(use.util_percent for use in uses),
        gpu_clock_hz=middle(use.clock_hz for use in uses),
        gpu_power_w=middle(use.power_w for use in uses),
        gpu_memory_bytes=middle(use.memory_bytes for use in uses),
    )


def _warned(exam: Exam, sentences: Iterable[str | None]) -> Exam:
    said = [sentence for sentence in sentences if sentence is not None]
    return replace(exam, quality=replace(exam.quality, warnings=(*exam.quality.warnings, *said)))


def _batch_test(workload: Workload, clock: DeviceClock, effort: StepEffort, window_steps: int) -> BatchTest:
    step, what = workload.step, "the step with twice the batch"
    try:
        larger: Workload = user_code(lambda: doubled(workload), what)
        moved = known_work(_program(larger.step, what)).bytes
        pairs = user_code(lambda: alternating_windows(step, larger.step, clock, effort, window_steps), what)
    except ProgramFailed as error:
        return BatchTest((), None, f"{error}; labels and whatever else has the batch belong into Workload(inputs=...)")
    except (Missing, UsageError) as error:
        return BatchTest((), None, str(error))
    return BatchTest(pairs, moved)
