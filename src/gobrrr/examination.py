"""The examination: from a workload to an Exam. The user's objects are afterwards as they were."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
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
from gobrrr.stats import Sample
from gobrrr.steps import Ended, Steps, passed, retried, stepwise
from gobrrr.timing.batch import alternating_windows, doubled
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.kernel import Kernel
from gobrrr.timing.recordings import Recordings, record
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import (
    CPU_STEP_EFFORT,
    CUDA_STEP_EFFORT,
    LOOK,
    StepEffort,
    StepTimes,
    Trend,
    WarmUp,
    time_steps,
    warm_up,
    window_steps,
    windows,
)
from gobrrr.work import compiler_events
from gobrrr.work.lineage import Dispatched, as_written, traced
from gobrrr.work.op import Op
from gobrrr.work.padding import padding_share
from gobrrr.work.placement import one_device
from gobrrr.work.program import Program
from gobrrr.work.signature import change, changed, difference, known_work
from gobrrr.workload import Workload, blamed, made_step, stdout_spared, user_code

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
    modes: Iterable[str] = (),
) -> Exam:
    """Counts a step, times it without a profiler, then records it with one, and puts everything back.

    Of matrix products in modes that it does not use, but might, the ceilings are measured too. The batch test comes
    last: if twice the batch cannot be run, the Exam says why and holds all the rest.
    """
    stages, started = 6 if batch_test else 5, compiler_events.mark()
    progress(1, stages, "building the workload")
    made, workload = made_step(factory)
    step = partial(blamed, made, "the step")
    if batch_test and workload is None:
        raise UsageError("a bare step has no batch that could be doubled: return a gobrrr.Workload(model, inputs)")
    with preserved(workload or made) as kept, stdout_spared():
        progress(2, stages, "counting a step")
        counted = _counted(step)
        clock = DeviceClock(one_device(counted.program.ops))
        varies = _varies(step, counted.program)
        progress(3, stages, "measuring the ceilings it needs")
        ceilings = measured(clock.device, only=needed_probes(counted.program, modes))
        progress(4, stages, "timing the step")
        effort = effort or _effort(clock)
        retries = allocation_retries(clock.device)
        step = partial(blamed, made, "the step ran at first and then")
        times, uses = _times(step, clock, effort)
        noticed = {
            "compilation": compiler_events.since(started),
            "padding": None if workload is None else padding_share(workload.inputs),
            **_noticed(clock.device, retries),
        }
        progress(5, stages, "recording a few steps")
        exam = _exam(target, clock.device, counted, ceilings, times, record(step, clock, times.step_s))
        exam = replace(_used(exam, uses), **noticed)
        exam = _warned(exam, [*kept.warnings, varies or _varies(step, counted.program)])
        if batch_test and workload is not None:
            progress(6, stages, "timing twice the batch")
            exam = replace(exam, batch_test=_batch_test(workload, clock, effort, times.window_steps))
        return exam


def examination(target: str, say: Callable[[str], None], *, one_by_one: bool = False) -> Steps[Exam]:
    """The same of steps that pass by themselves, once each, of a program whose state is its own.

    T comes after the recordings, so that whatever windows there are when the steps end make an Exam, and the ceilings
    last, when nothing waits for them. One by one are steps timed whose neighbours do something else. What was compiled
    is asked for first: to count a step compiles more.
    """
    compilation = compiler_events.since(compiler_events.BEGINNING)
    counted = yield from _counted.passing()
    clock = DeviceClock(one_device(counted.program.ops))
    effort = _effort(clock)
    warm = yield from warm_up.passing(clock, effort)
    recordings = yield from record.passing(clock, warm.settled_s)
    with sampling(partial(gpu_use, identify(clock.device).uuid)) as uses:
        retries = allocation_retries(clock.device)
        times = yield from _times_so_far(clock, warm, effort, one_by_one=one_by_one)
        noticed = _noticed(clock.device, retries)
    varies = yield from _differs(counted.program)
    say("measuring what this machine can do, as far as the step needs it; the program waits")
    ceilings = measured(clock.device, only=needed_probes(counted.program))
    exam = _exam(target, clock.device, counted, ceilings, times, recordings)
    exam = replace(exam, compilation=compilation, **noticed)
    return _warned(_used(exam, uses), [varies, None if counted.compiled is None else RAN_UNCOMPILED])


RAN_UNCOMPILED = (
    "some steps ran without the compiler, to be counted as written: what they computed may differ from the others' "
    "as far as a compiler may round"
)


def _times_so_far(clock: DeviceClock, warm: WarmUp, effort: StepEffort, *, one_by_one: bool) -> Steps[StepTimes]:
    """If no window was complete when the steps ended, the single steps before stand for them."""
    number, taken = 1, list[float]()
    try:
        if not one_by_one:
            number = yield from window_steps.passing(clock, warm, effort)
        yield from windows(clock, number, effort, taken)
    except Ended:
        number, taken = (number, taken) if taken else (1, list(warm.step_s[-LOOK:]))
    return StepTimes(warm, Sample(tuple(taken)), number, effort.windows)


def _differs(program: Program) -> Steps[str | None]:
    """Whether the step does something else by now, if one more comes."""
    from gobrrr.work.counter import counted_program

    try:
        return difference(program, (yield from retried(counted_program.passing)))
    except Ended:
        return None


def _effort(clock: DeviceClock) -> StepEffort:
    return CPU_STEP_EFFORT if clock.device == "cpu" else CUDA_STEP_EFFORT


@dataclass(frozen=True, slots=True)
class Counted:
    """What a step asks for, and what is dispatched of it."""

    program: Program
    compiled: Program | None
    """The same after compilation; None if nothing is compiled."""
    ran: Dispatched


@stepwise
def _counted() -> Steps[Counted]:
    from gobrrr.work.counter import dispatched_program

    program = yield from _program.passing()
    compiled = yield from retried(dispatched_program.passing)
    ran = as_written(program.ops) if compiled is None else traced(program.ops, compiled.ops)
    return Counted(program, compiled, ran)


@stepwise
def _program() -> Steps[Program]:
    """Of the second step: the first makes what lives on, such as the optimizer's state."""
    from gobrrr.work.counter import counted_program

    yield from retried(passed)
    return (yield from retried(counted_program.passing))


@stepwise
def _varies(program: Program) -> Steps[str | None]:
    """What a step does otherwise than the counted one, if that is little; if it is much, no number would hold."""
    from gobrrr.work.counter import counted_program

    again = yield from counted_program.passing()
    sentence = changed(program, again)
    if sentence is not None and change(program, again) > MOST_CHANGE:
        raise CannotDecide(sentence)
    return sentence


def needed_probes(program: Program, modes: Iterable[str] = ()) -> list[str]:
    """The ceilings that this program's floors are made of, or would be in other modes, and no others.

    What no probe measures, as products of integers, has no ceiling, and what is made of it no floor.
    """
    might = (f"matmul.{mode}" for mode in modes)
    wanted = dict.fromkeys(("dram", "cache", "shortest_kernel", "dispatch", *_arithmetic_probes(program), *might))
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


@stepwise
def _times(clock: DeviceClock, effort: StepEffort) -> Steps[tuple[StepTimes, list[GpuUse]]]:
    """The step timed, and how the GPU was used meanwhile: samples of the stages before the last are dropped."""
    with sampling(partial(gpu_use, identify(clock.device).uuid)) as uses:
        times = yield from time_steps.passing(clock, effort, progress=lambda *_: uses.clear())
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
            warnings=(*times.doubts, *recordings.doubts, *_unseen(counted.ran.ops), *_unlinked(linked, device)),
        ),
        gap_before_s=recordings.gap_before_s,
        idle=recordings.idle(len(counted.ran.ops), ceilings, idle_s),
    )


def _noticed(device: str, retries_before: int | None) -> dict[str, Any]:
    """What the device says of the time since, asked for before a recording changes it."""
    retries, uuid = allocation_retries(device), identify(device).uuid
    state = None if uuid is None else gpu_state(uuid)
    return {
        "allocation_retries": None if retries is None else retries - (retries_before or 0),
        "device_doubts": () if state is None else tuple(gpu_doubts([state])),
    }


def _linked_share(kernels: tuple[Kernel, ...]) -> float | None:
    busy_s = sum(kernel.seconds for kernel in kernels)
    linked_s = sum(kernel.seconds for kernel in kernels if kernel.fused_from is not None)
    return linked_s / busy_s if busy_s else None


def _unseen(ran: tuple[Op, ...]) -> tuple[str, ...]:
    """A step may work where nobody looks, as in a thread of its own."""
    return (
        () if any(op.launches for op in ran) else ("no op of the step was seen: all of its time passes for the host's",)
    )


def _unlinked(linked_share: float | None, device: str) -> tuple[str, ...]:
    if linked_share is None or linked_share >= MOSTLY_LINKED:
        return ()
    unlinked, such = (
        units.percent(1 - linked_share, 0),
        "" if device == "cpu" else ", as of a CUDA graph captured beforehand,",
    )
    return (f"{unlinked} of busy time{such} has no op that launched it: not counted",)


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
    from gobrrr.work import inductor

    step, what = workload.step, "the step with twice the batch"
    try:
        with inductor.static_shapes():
            larger: Workload = user_code(lambda: doubled(workload), what)
            moved = known_work(_program(partial(blamed, larger.step, what))).bytes
            pairs = user_code(lambda: alternating_windows(step, larger.step, clock, effort, window_steps), what)
    except ProgramFailed as error:
        return BatchTest((), None, f"{error}; labels and whatever else has the batch belong into Workload(inputs=...)")
    except (Missing, UsageError) as error:
        return BatchTest((), None, str(error))
    return BatchTest(pairs, moved)
