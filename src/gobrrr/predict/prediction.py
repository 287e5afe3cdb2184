"""A Prediction: what a counted step would take on one accelerator, with its interval and its limits."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from gobrrr.diagnose.diagnosis import leading_regime, limiter
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import Exam
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet
from gobrrr.predict import accelerator as accelerators
from gobrrr.predict import host as hosts
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.anchored import anchored
from gobrrr.predict.cast import cast
from gobrrr.predict.host import Host
from gobrrr.predict.spread import interval
from gobrrr.predict.step import Step, step
from gobrrr.predict.what_if import AS_IT_IS, Change, check
from gobrrr.work.program import Program
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
    peak_memory_bytes: int
    memory_bytes: int
    fits: bool


@dataclass(frozen=True, slots=True)
class WhatIf:
    accelerator: str
    change: str
    step_s: float
    speedup: float
    """Of the step, or of an item of the batch where that changes."""


@dataclass(frozen=True, slots=True)
class Predictions:
    SCHEMA: ClassVar[str] = "predict"
    VERSION: ClassVar[int] = 1

    target: str
    predictions: tuple[Prediction, ...]
    what_if: tuple[WhatIf, ...]


Counting = Callable[[float], Program]
"""From a factor of the batch to the counted step."""


def predictions(
    target: str,
    counting: Counting,
    sheets: Sequence[Datasheet],
    changes: Sequence[Change],
    ceilings: Sequence[Ceilings],
) -> Predictions:
    for sheet in sheets:
        for change in changes:
            check(change, sheet)
    base = counting(1.0)
    programs = {1.0: base} | {change.batch: counting(change.batch) for change in changes if change.batch != 1}
    found, what_ifs = [], []
    for sheet in sheets:
        device, host = machine(sheet, ceilings)
        as_is = _step(base, device, host, AS_IT_IS)
        found.append(prediction(base, as_is, device))
        for change in changes:
            changed = _step(programs[change.batch], device, host, change)
            speedup = as_is.step_s * change.batch / changed.step_s
            what_ifs.append(WhatIf(sheet.id, change.text, changed.step_s, speedup))
    return Predictions(target, tuple(found), tuple(what_ifs))


def machine(sheet: Datasheet, ceilings: Sequence[Ceilings]) -> tuple[Accelerator, Host]:
    """By its datasheet, or by what was measured on it where that is given."""
    device = accelerators.from_datasheet(sheet)
    host = hosts.host_of(device)
    for measured in ceilings:
        if measured.device in (sheet.id, *sheet.aliases):
            return accelerators.calibrated(device, measured), hosts.calibrated(host, measured)
    return device, host


def _step(program: Program, device: Accelerator, host: Host, change: Change) -> Step:
    ops = cast(program.ops, change.dtype) if change.dtype else program.ops
    if change.power_w is not None:
        device = accelerators.with_power(device, change.power_w)
    return step(ops, device, host, change.variant)


def prediction(program: Program, predicted: Step, device: Accelerator) -> Prediction:
    low, high = interval(predicted.family_s, predicted.step_s)
    seconds = {Regime.COMPUTE: predicted.compute_s, Regime.BANDWIDTH: predicted.bandwidth_s}
    seconds |= {Regime.OVERHEAD: predicted.overhead_s}
    shares = {regime.value: seconds.get(regime, 0.0) / predicted.step_s for regime in Regime}
    work = total(op.work for op in program.ops if op.work is not None)
    needed = int(program.memory.peak_bytes * FRAGMENTED) + (0 if device.serial else CONTEXT_BYTES)
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
        fits=needed <= device.memory_bytes,
    )


def from_exam(exam: Exam, sheets: Sequence[Datasheet]) -> Predictions:
    """Anchored in what was measured on another machine."""
    found = []
    for sheet in sheets:
        device = accelerators.from_datasheet(sheet)
        predicted = anchored(exam, device)
        assert exam.program is not None  # anchored() has refused such Exams
        found.append(prediction(exam.program, predicted, device))
    return Predictions(exam.target, tuple(found), ())
