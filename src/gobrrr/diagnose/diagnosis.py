"""The Diagnosis: where a step's time went, what limits it, and how far it is from its floors."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from gobrrr import units
from gobrrr.diagnose.attribute import (
    BUSY,
    TOO_BUSY,
    Attributed,
    as_run_floor_s,
    attribute,
    queued_gaps_s,
    regime_seconds,
)
from gobrrr.diagnose.batch import BatchVerdict, batch_verdict
from gobrrr.diagnose.compulsory import compulsory_floor
from gobrrr.diagnose.counterfactual import Sides
from gobrrr.diagnose.findings import Case, Finding, Rule, find_all
from gobrrr.diagnose.floor import ABOVE
from gobrrr.diagnose.fusion import fused_floor
from gobrrr.diagnose.modules import ModuleNode, module_tree
from gobrrr.diagnose.regime import Regime
from gobrrr.diagnose.rows import ClassRow, OpRow, class_rows, op_rows
from gobrrr.exam import Exam, Quality
from gobrrr.machine import datasheets
from gobrrr.machine.restore import without_garbage_collection
from gobrrr.timing.kernel import Sync
from gobrrr.work.op import CountedBy
from gobrrr.work.registry import canonical
from gobrrr.work.work import total

CLOSE = 0.05
"""Two leading shares nearer than this are a tie: noise would decide which one is named."""

LIMITS = 0.9
"""Of the step: a side that needs this much of it leaves the other at most a tenth to gain."""

MOST_BEATEN = 0.05
"""Of busy time, in ops above their ceilings, up to which short kernels on a coarse clock explain it."""

MOST_UNCOUNTED = 0.3
"""Beyond, the part that nobody counted could overturn any verdict on the rest."""


@dataclass(frozen=True, slots=True)
class MachineName:
    name: str
    ceilings_from: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """What `examine --json` and `show --json` print."""

    SCHEMA: ClassVar[str] = "diagnosis"
    VERSION: ClassVar[int] = 1

    machine: MachineName
    target: str
    step_s: float
    step_s_low: float
    step_s_high: float
    step_s_method: str
    step_profiled_s: float | None
    steps: int
    step_period: int
    host_s: float | None
    device_s: float
    busy_s: float
    busy_scale: float
    idle_s: float
    idle_causes_s: Mapping[str, float] | None
    """What the host did while nothing ran, adding to `idle_s`."""
    latency_s: float
    limiter: str
    seconds: Mapping[str, float]
    """By regime, adding to the step exactly."""
    shares: Mapping[str, float] | None
    attained_s: Mapping[str, float]
    inefficient_s: Mapping[str, float]
    regime: str
    flops: float | None
    flops_dense: float | None
    bytes: float | None
    """Of all whose work is known; None if that of nothing is."""
    mfu: float | None
    measured_peak_fraction: float | None
    compulsory_floor_s: float | None
    fused_floor_s: float | None
    as_run_floor_s: float | None
    """None if a kernel that computes has no floor; a percent of the busy time may be in such kernels."""
    fraction_of_floor: float | None
    gpu_util_percent: float | None
    gpu_clock_hz: float | None
    gpu_power_w: float | None
    gpu_memory_bytes: float | None
    peak_memory_bytes: int | None
    coverage: Mapping[str, float]
    """Fractions of busy time."""
    classes: Mapping[str, ClassRow]
    ops: tuple[OpRow, ...]
    modules: ModuleNode
    """All kernels as a tree by the module they ran in."""
    findings: tuple[Finding, ...]
    """Named problems, the most step seconds at stake first. They overlap and do not add."""
    syncs: tuple[Sync, ...] | None
    quality: Quality
    batch_test: BatchVerdict | None = None


@without_garbage_collection()  # a thousand small objects in no cycle, in a process that may hold millions
def diagnose(exam: Exam, rules: Iterable[Rule] | None = None) -> Diagnosis:
    """Looks for all findings, or for those of these rules."""
    kernels, scale = attribute(exam)
    busy_s = sum(one.seconds for one in kernels)
    seconds = regime_seconds(kernels, exam.step_s - busy_s)
    shares = {name: part / exam.step_s for name, part in seconds.items()}
    known = [one.work for one in kernels if one.work is not None]
    work = total(known)
    host_s = max(0.0, exam.step_s - busy_s) if exam.serial else exam.host_s  # rounding
    device_s = busy_s if exam.serial else min(exam.step_s, busy_s + queued_gaps_s(exam.kernels, exam.gap_before_s))
    floors = None if exam.program is None else fused_floor(exam.program, exam.ceilings)
    fused, as_run = None if floors is None else floors.seconds, as_run_floor_s(kernels)
    sheet = datasheets.find(exam.ceilings.device)
    compulsory = None if exam.program is None else compulsory_floor(exam.program, exam.ceilings, sheet).seconds
    dense_once = _dense_without_recomputation(exam)
    mode = max(work.matrix, key=work.matrix.__getitem__, default=None)
    interval = exam.step_interval
    idle_s = 0.0 if scale > 1 else exam.step_s - busy_s  # scaled to fill the step, up to rounding
    limits = limiter(host_s, device_s, exam.step_s)
    return Diagnosis(
        machine=MachineName(exam.ceilings.device, exam.ceilings_from),
        target=exam.target,
        step_s=exam.step_s,
        step_s_low=interval.low,
        step_s_high=interval.high,
        step_s_method=exam.step_s_method,
        step_profiled_s=exam.step_profiled_s,
        steps=exam.steps,
        step_period=exam.step_period,
        host_s=host_s,
        device_s=device_s,
        busy_s=busy_s,
        busy_scale=scale,
        idle_s=idle_s,
        idle_causes_s=_idle_causes_s(exam, idle_s),
        latency_s=sum(one.parts.latency for one in kernels if one.parts is not None),
        limiter=limits,
        seconds=seconds,
        shares=shares if scale <= TOO_BUSY else None,
        attained_s=_parts(kernels, "attained"),
        inefficient_s=_parts(kernels, "inefficient"),
        regime=leading_regime(shares) if scale <= TOO_BUSY else "unknown",
        flops=work.flops if known else None,
        flops_dense=work.flops_dense if known else None,
        bytes=work.bytes if known else None,
        mfu=_fraction(dense_once, exam.step_s, None if sheet is None else sheet.matmul_flops_per_s, mode),
        measured_peak_fraction=_fraction(dense_once, exam.step_s, exam.ceilings.matmul_flops_per_s, mode),
        compulsory_floor_s=compulsory,
        fused_floor_s=fused,
        as_run_floor_s=as_run,
        fraction_of_floor=None if fused is None else fused / exam.step_s,
        gpu_util_percent=exam.gpu_util_percent,
        gpu_clock_hz=exam.gpu_clock_hz,
        gpu_power_w=exam.gpu_power_w,
        gpu_memory_bytes=exam.gpu_memory_bytes,
        peak_memory_bytes=exam.peak_memory_bytes,
        coverage=coverage(kernels, busy_s),
        classes=class_rows(kernels, busy_s),
        ops=op_rows(kernels, exam),
        modules=module_tree(kernels),
        findings=find_all(Case(exam, tuple(kernels), Sides(host_s, device_s, exam.serial), limits, floors), rules),
        syncs=exam.syncs,
        quality=replace(exam.quality, warnings=(*exam.quality.warnings, *_doubts(exam, kernels, fused, as_run, scale))),
        batch_test=batch_verdict(exam, shares if scale <= TOO_BUSY else None),
    )


def _idle_causes_s(exam: Exam, idle_s: float) -> dict[str, float] | None:
    """The longest first."""
    if exam.idle is None:
        return None
    return {cause: share * idle_s for cause, share in sorted(exam.idle.items(), key=lambda item: -item[1])}


def leading_regime(shares: Mapping[str, float]) -> str:
    """The largest share; mixed if two lead together, unknown if too much is uncounted."""
    if shares[Regime.UNCOUNTED] > MOST_UNCOUNTED:
        return "unknown"
    named = {name: share for name, share in shares.items() if name != Regime.UNCOUNTED}
    first, second = sorted(named, key=named.__getitem__, reverse=True)[:2]
    return "mixed" if named[first] - named[second] < CLOSE else first


def limiter(host_s: float | None, device_s: float, step_s: float) -> str:
    """Which side fills the step. Occupancy is not limitation: a busy device may wait for nobody, or for the host."""
    if host_s is None:
        return "unknown"
    host, device = host_s >= LIMITS * step_s, device_s >= LIMITS * step_s
    if host and device:
        return "balanced"
    return "host" if host else "device" if device else "mixed"


def coverage(kernels: Iterable[Attributed], busy_s: float) -> dict[str, float]:
    seconds = dict.fromkeys((kind.value for kind in CountedBy), 0.0)
    for one in kernels:
        seconds[CountedBy.UNKNOWN if one.op is None else one.op.counted_by] += one.seconds
    return {name: part / busy_s if busy_s else 0.0 for name, part in seconds.items()}


def _parts(kernels: Iterable[Attributed], part: str) -> dict[str, float]:
    seconds = {Regime.COMPUTE.value: 0.0, Regime.BANDWIDTH.value: 0.0}
    for one in kernels:
        if one.parts is not None and one.regime in seconds:
            seconds[one.regime] += getattr(one.parts, part)
    return seconds


def _doubts(
    exam: Exam, kernels: Sequence[Attributed], fused_s: float | None, as_run_s: float | None, scale: float
) -> Iterator[str]:
    """What the diagnosis itself finds odd."""
    if scale > BUSY:
        yield (
            f"the recorded kernels take {scale:.2f} times as long as the step: their times were scaled down to fit"
            + ("" if scale <= TOO_BUSY else ", and no regime is named")
        )
    again = "the ceilings were measured on a busy machine: gobrrr machine --fresh"
    if fused_s is not None and fused_s > ABOVE * exam.step_s:
        yield f"quicker than its floor; {again}"
    elif as_run_s is not None and as_run_s > ABOVE * exam.step_s:
        yield f"quicker than the floors of its kernels one after the other; they overlap, or {again}"
    else:
        yield from _beaten(kernels)
    if exam.batch_test is not None and exam.batch_test.problem is not None:
        yield f"there is no batch test: {exam.batch_test.problem}"


def _beaten(kernels: Sequence[Attributed]) -> Iterator[str]:
    """Ops above their ceilings; never clamped, so told."""
    beaten = [
        one
        for one in kernels
        if one.parts is not None and one.floor is not None and one.seconds and one.floor.is_beaten_by(one.seconds)
    ]
    share = sum(one.seconds for one in beaten) / (sum(one.seconds for one in kernels) or 1.0)
    if share > MOST_BEATEN:
        most = max(beaten, key=lambda one: one.seconds)
        assert most.op is not None
        yield (
            f"{units.percent(share, 0)} of busy time is in ops that take less than their floors, "
            f"{canonical(most.op.name)} before all: a ceiling is too low, or less is done than was counted"
        )


def _dense_without_recomputation(exam: Exam) -> float | None:
    ops = exam.dispatched if exam.program is None else exam.program.ops
    counted = [op for op in ops if op.work is not None]
    return sum(op.work.flops_dense for op in counted if op.work and not op.recomputed) if counted else None


def _fraction(flops: float | None, step_s: float, peaks: Mapping[str, float] | None, mode: str | None) -> float | None:
    peak = None if peaks is None or mode is None else peaks.get(mode)
    return flops / (step_s * peak) if peak and flops is not None else None
