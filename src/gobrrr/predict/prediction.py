"""A Prediction: what a counted step would take on one accelerator, with its interval and its limits."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gobrrr.bounds import LEAST_RATIO, LEAST_S, MOST, MOST_RATIO, MOST_S, ROUNDING, Bound, refuse_beyond
from gobrrr.diagnose.diagnosis import leading_regime, limiter
from gobrrr.diagnose.regime import Regime
from gobrrr.errors import ProgramFailed, UsageError
from gobrrr.exam import Exam
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet
from gobrrr.predict import accelerator as accelerators
from gobrrr.predict import host as hosts
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.anchored import anchor, anchored, own_sheet, rescaled
from gobrrr.predict.cast import cast
from gobrrr.predict.checkpoint import checkpointed
from gobrrr.predict.flash import flashed
from gobrrr.predict.host import Host
from gobrrr.predict.inputs import Scale
from gobrrr.predict.spread import interval
from gobrrr.predict.step import Step, Variant, step
from gobrrr.predict.what_if import Change, check
from gobrrr.work.op import Op
from gobrrr.work.program import Memory, Program
from gobrrr.work.work import total

CONTEXT_BYTES = 600 << 20
"""Of a CUDA context with its libraries' workspaces."""
FRAGMENTED = 1.05
"""What the allocator holds over what is alive."""


@dataclass(frozen=True, slots=True)
class Prediction:
    accelerator: str
    step_s: float
    low_s: float
    high_s: float
    """80 % of such predictions lie between."""
    host_s: float
    device_s: float
    regime: str
    limiter: str
    shares: dict[str, float]
    flops: float
    bytes: float
    peak_memory_bytes: int | None
    """None of a trace, which says what ran and not what was kept."""
    memory_bytes: int
    fits: bool | None


@dataclass(frozen=True, slots=True)
class WhatIf:
    accelerator: str
    change: str
    step_s: float
    speedup: float
    """Of the step, or of an item of the batch or of a token where their number changes."""
    peak_memory_bytes: int | None
    """None where the change was not counted by storages: another precision, fusion, a trace."""


@dataclass(frozen=True, slots=True)
class Predictions:
    SCHEMA: ClassVar[str] = "predict"
    VERSION: ClassVar[int] = 1

    target: str
    predictions: tuple[Prediction, ...]
    what_if: tuple[WhatIf, ...]

    def __post_init__(self) -> None:
        """It is a file, and files come from strangers."""
        refuse_beyond("prediction", _bounds(self))


def _bounds(found: Predictions) -> Iterator[Bound]:
    named = {Regime.COMPUTE, Regime.BANDWIDTH, Regime.OVERHEAD}
    both: tuple[Prediction | WhatIf, ...] = (*found.predictions, *found.what_if)
    yield Bound("the number of accelerators", 1, MOST, [len(found.predictions)])
    yield Bound("a step time", LEAST_S, MOST_S, [one.step_s for one in both])
    yield Bound(
        "an end of an interval", 0, MOST_S, [end for one in found.predictions for end in (one.low_s, one.high_s)]
    )
    yield Bound("a speed-up", LEAST_RATIO, MOST_RATIO, [one.speedup for one in found.what_if])
    yield Bound("a size in memory", 0, MOST, [one.peak_memory_bytes for one in both])
    yield Bound(
        "a number of regimes", len(named), len(named), [len(named & set(one.shares)) for one in found.predictions]
    )
    yield Bound(
        "a share", -ROUNDING, 1 + ROUNDING, [share for one in found.predictions for share in one.shares.values()]
    )


Counting = Callable[[Scale], Program]
"""From what is asked of the workload to its counted step."""


def predictions(
    target: str,
    counting: Counting,
    sheets: Sequence[Datasheet],
    changes: Sequence[Change],
    ceilings: Sequence[Ceilings],
    variant: Variant = Variant.EAGER,
) -> Predictions:
    """Of a program that runs as `variant` already."""
    for sheet in sheets:
        for change in changes:
            check(change, sheet)
    given = Scale(traced=variant.is_compiled)
    base = counting(given)
    if not base.ops:
        raise UsageError(f"{target} runs no op in its step: there is nothing to predict")
    asked = [change.on_top_of(variant) for change in changes]
    counted = {given: base} | {scale: _counted(counting, scale) for scale in {one.scale for one in asked} - {given}}
    programs = {change: changed(counted[change.scale], change) for change in asked}
    found, what_ifs = [], []
    for sheet in sheets:
        device, host = machine(sheet, ceilings)
        as_is = step(base.ops, device, host, variant)
        found.append(prediction(base.ops, base.memory, as_is, device))
        what_ifs += [
            what_if(program.memory, change, as_is.step_s, _step(program.ops, device, host, change).step_s, device)
            for change, program in programs.items()
        ]
    return Predictions(target, tuple(found), tuple(what_ifs))


def _counted(counting: Counting, scale: Scale) -> Program:
    try:
        return counting(scale)
    except ProgramFailed as failure:
        if scale.batch == scale.sequence == 1:
            raise
        raise ProgramFailed(
            f"with {scale.batch:g}x the batch and {scale.sequence:g}x the tokens {failure}; what a loss or a module "
            "closes over keeps its size: hand it to the model with the inputs"
        ) from failure


def changed(program: Program, change: Change) -> Program:
    """What a change makes of the ops. How they then run is left to the step."""
    if change.flash:
        program = replace(program, ops=flashed(program.ops))
    if change.checkpoint:
        program = checkpointed(program)
    return replace(program, ops=cast(program.ops, change.dtype)) if change.dtype else program


def what_if(memory: Memory | None, change: Change, before_s: float, after_s: float, device: Accelerator) -> WhatIf:
    is_counted = not (change.dtype or change.flash or change.compiled)
    return WhatIf(
        device.name,
        change.text,
        after_s,
        before_s * change.batch * change.sequence / after_s,
        needed_bytes(memory, device) if is_counted else None,
    )


def machine(sheet: Datasheet, ceilings: Sequence[Ceilings]) -> tuple[Accelerator, Host]:
    """By its datasheet, or by what was measured on it where that is given."""
    device = accelerators.from_datasheet(sheet)
    host = hosts.host_of(device)
    for measured in ceilings:
        if measured.device in (sheet.id, *sheet.aliases):
            return accelerators.calibrated(device, measured), hosts.calibrated(host, measured)
    return device, host


def _step(ops: Sequence[Op], device: Accelerator, host: Host, change: Change) -> Step:
    if change.power_w is not None:
        device = accelerators.with_power(device, change.power_w)
    return step(ops, device, host, change.variant)


def needed_bytes(memory: Memory | None, device: Accelerator) -> int | None:
    if memory is None:
        return None
    return int(memory.peak_bytes * FRAGMENTED) + (0 if device.serial else CONTEXT_BYTES)


def prediction(ops: Sequence[Op], memory: Memory | None, predicted: Step, device: Accelerator) -> Prediction:
    low, high = interval(predicted.family_s, predicted.step_s, device.name)
    seconds = {Regime.COMPUTE: predicted.compute_s, Regime.BANDWIDTH: predicted.bandwidth_s}
    seconds |= {Regime.OVERHEAD: predicted.overhead_s}
    shares = {regime.value: seconds.get(regime, 0.0) / predicted.step_s for regime in Regime}
    work = total(op.work for op in ops if op.work is not None)
    needed = needed_bytes(memory, device)
    return Prediction(
        accelerator=device.name,
        step_s=predicted.step_s,
        low_s=low,
        high_s=high,
        host_s=predicted.host_s,
        device_s=predicted.device_s,
        regime=leading_regime(shares),
        limiter=limiter(predicted.host_s, predicted.device_s, predicted.step_s),
        shares=shares,
        flops=work.flops,
        bytes=work.bytes,
        peak_memory_bytes=needed,
        memory_bytes=device.memory_bytes,
        fits=None if needed is None else needed <= device.memory_bytes,
    )


def from_exam(exam: Exam, sheets: Sequence[Datasheet], changes: Sequence[Change]) -> Predictions:
    """Anchored in what was measured, on the same machine or another: changes scale what was measured."""
    is_trace = exam.program is None
    for change in changes:
        needs_workload = change.batch != 1 or change.sequence != 1
        if needs_workload or (is_trace and (change.compiled or change.flash or change.checkpoint)):
            instead = "FILE.py:NAME" if needs_workload else "FILE.py:NAME or an Exam"
            raise UsageError(f"{change.text!r} needs the workload: give {instead} in place of {exam.target}")
    ops = anchor(exam)
    variant = Variant.COMPILED if exam.dispatched and not is_trace else Variant.EAGER
    asked = [change.on_top_of(variant) for change in changes]
    programs = {change: _changed_exam(exam, change) for change in asked}
    memory = exam.program.memory if exam.program else None
    found, what_ifs = [], []
    for sheet in sheets or [own_sheet(exam)]:
        device, host = machine(sheet, [])
        as_is = anchored(exam, device)
        found.append(prediction(ops, memory, as_is, device))
        before = step(ops, device, host, variant)
        for change, (changed_ops, changed_memory) in programs.items():
            check(change, sheet)
            after_s = rescaled(as_is, before, _step(changed_ops, device, host, change), serial=device.serial)
            what_ifs.append(what_if(changed_memory, change, as_is.step_s, after_s, device))
    return Predictions(exam.target, tuple(found), tuple(what_ifs))


def _changed_exam(exam: Exam, change: Change) -> tuple[Sequence[Op], Memory | None]:
    """A trace has ops and no program: what its storages were nobody recorded."""
    if exam.program is None:
        return (cast(exam.ran, change.dtype) if change.dtype else exam.ran), None
    program = changed(exam.program, change)
    return program.ops, program.memory
