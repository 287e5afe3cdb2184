"""The examination: from a workload to an Exam. The user's objects are afterwards as they were."""

import math
from collections import Counter as Multiset
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from time import perf_counter
from typing import Any, cast

from gobrrr.exam import Exam, Quality
from gobrrr.machine import Ceilings, measured
from gobrrr.machine.probes import PROBES
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.host import host_s, waits
from gobrrr.timing.kernel import Kernel, Sync
from gobrrr.timing.kernels import device_kernels, host_kernels
from gobrrr.timing.recording import recorded
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, StepEffort, StepTimes, Trend, time_steps
from gobrrr.timing.syncs import sync_lines
from gobrrr.timing.timeline import Timeline, asked_for_within
from gobrrr.work.op import Op
from gobrrr.work.program import Program
from gobrrr.workload import Step, made_step, user_code

Progress = Callable[[int, int, str], None]

RECORDED_STEPS = 3
"""Of the recording without ops: the middle one has a step before it and one behind, as in a loop."""

LEAD_IN_S = 1.0
"""Of steps before a recording: power and clock controllers of a GPU settle within it."""

MOST_LEAD_IN = 1000

HOST_RECORDINGS = 3
"""Of a CPU step with its ops: an op's time is the median of them."""


def examine(
    factory: Callable[[], Any],
    target: str,
    progress: Progress = lambda _number, _total, _what: None,
    *,
    effort: StepEffort | None = None,
) -> Exam:
    """Counts a step, times it without a profiler, then records it with one, and puts everything back."""
    progress(1, 5, "building the workload")
    step, workload = made_step(factory)
    with preserved(workload or step):
        progress(2, 5, "counting a step")
        program = _counted(step)
        device = _device(program.ops)
        progress(3, 5, "measuring the ceilings it needs")
        ceilings = measured(device, only=needed_probes(program))
        progress(4, 5, "timing the step")
        clock = DeviceClock(device)
        effort = effort or (CPU_STEP_EFFORT if device == "cpu" else CUDA_STEP_EFFORT)
        times: StepTimes = user_code(lambda: time_steps(step, clock, effort), "the step")
        progress(5, 5, "recording a few steps")
        return _recorded_exam(step, target, program, ceilings, times, clock)


def _recorded_exam(
    step: Step, target: str, program: Program, ceilings: Ceilings, times: StepTimes, clock: DeviceClock
) -> Exam:
    serial = clock.device == "cpu"
    began_s = perf_counter()
    linked = user_code(lambda: recorded(step, clock.synchronize, ops=True), "the step")
    profiled_s = perf_counter() - began_s
    timed = None if serial else _timed(step, clock, times.step_s)
    kernels = _kernels(step, program, ceilings, linked, timed, clock)
    return Exam(
        target=target,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        device=clock.device,
        serial=serial,
        ceilings=ceilings,
        ceilings_from="measured",
        window_step_s=times.windows.values,
        steps=len(times.windows.values) * times.window_steps,
        step_s_method="windows",
        step_profiled_s=_span_s(linked) or profiled_s,
        host_s=None if timed is None else _bounded(host_s(timed, RECORDED_STEPS), times.step_s),
        kernels=kernels,
        program=program,
        syncs=None if timed is None else _syncs(step, timed),
        peak_memory_bytes=program.memory.peak_bytes,
        gpu_util_percent=None,
        quality=Quality(
            linked_share=_linked_share(kernels),
            steady=times.warm_up.is_steady,
            growing=times.trend is Trend.GROWS,
            warnings=times.doubts,
        ),
    )


def _timed(step: Step, clock: DeviceClock, step_s: float) -> Timeline:
    """The device alone, after a lead-in that brings its clocks to where they were while the step was timed."""
    lead_in = min(MOST_LEAD_IN, math.ceil(LEAD_IN_S / step_s))
    return cast(
        "Timeline",
        user_code(
            lambda: recorded(step, clock.synchronize, ops=False, steps=RECORDED_STEPS, lead_in=lead_in), "the step"
        ),
    )


def _syncs(step: Step, timed: Timeline) -> tuple[Sync, ...]:
    """The waits of one step, each with the line it comes from where torch names as many as were seen."""
    calls = waits(timed)
    one_step = calls[: len(calls) // RECORDED_STEPS]
    lines = user_code(lambda: sync_lines(step), "the step")
    sources = lines if len(lines) == len(one_step) else [None] * len(one_step)
    return tuple(Sync(call.name, call.seconds, source) for call, source in zip(one_step, sources, strict=True))


def _kernels(
    step: Step, program: Program, ceilings: Ceilings, linked: Timeline, timed: Timeline | None, clock: DeviceClock
) -> tuple[Kernel, ...]:
    if timed is not None:
        return device_kernels(program.ops, asked_for_within(linked), asked_for_within(timed), RECORDED_STEPS)

    def record() -> Timeline:
        return recorded(step, clock.synchronize, ops=True)

    again = (user_code(record, "the step") for _ in range(HOST_RECORDINGS - 1))
    return host_kernels(
        program.ops, [linked, *again], ceilings.dispatch_s or 0.0, profiler_op_s(ceilings.dispatch_s or 0.0)
    )


def profiler_op_s(dispatch_s: float, ops: int = 500) -> float:
    """What recording one op costs, from small additions that are nothing but dispatch without it."""
    import torch

    x = torch.ones(1)

    def additions() -> None:
        for _ in range(ops):
            torch.add(x, x)

    spans = recorded(additions, lambda: None, ops=True).ops
    wall_s = max(span.end_s for span in spans) - min(span.start_s for span in spans)
    return max(0.0, wall_s / ops - dispatch_s)


def _counted(step: Step) -> Program:
    from gobrrr.work.counter import counted_program

    user_code(step, "the step")
    return counted_program(lambda: user_code(step, "the step"))


def _device(ops: tuple[Op, ...]) -> str:
    """Where most kernels are launched; work on an accelerator outweighs the host's own small ops."""
    launched = Multiset(op.device for op in ops if op.launches)
    accelerated = Multiset({device: number for device, number in launched.items() if device != "cpu"})
    return next((device for device, _ in (accelerated or launched).most_common(1)), "cpu")


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


def _bounded(host_s: float | None, step_s: float) -> float | None:
    """The recording slows the host a little; in a step of T it cannot need more than T."""
    return None if host_s is None else min(host_s, step_s)


def _span_s(recording: Timeline) -> float:
    spans = (*recording.ops, *recording.device)
    return max((span.end_s for span in spans), default=0.0) - min((span.start_s for span in spans), default=0.0)


def _linked_share(kernels: tuple[Kernel, ...]) -> float | None:
    busy_s = sum(kernel.seconds for kernel in kernels)
    linked_s = sum(kernel.seconds for kernel in kernels if kernel.fused_from is not None)
    return linked_s / busy_s if busy_s else None
