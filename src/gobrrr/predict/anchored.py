"""From an Exam: each kernel's measured time, scaled by what the model says of the other machine over this one."""

from collections.abc import Sequence

from gobrrr.errors import BadInput
from gobrrr.exam import Exam
from gobrrr.machine import datasheets
from gobrrr.machine.datasheets import Datasheet
from gobrrr.predict.accelerator import Accelerator, from_datasheet
from gobrrr.predict.host import Issued, host_of
from gobrrr.predict.kernels import Kernel
from gobrrr.predict.spread import Family
from gobrrr.predict.step import Step, eager
from gobrrr.work.op import Op


def anchored(exam: Exam, device: Accelerator) -> Step:
    """A step on `device`, on the Exam's own host: what the model gets wrong on both machines alike cancels."""
    own, host_s = from_datasheet(own_sheet(exam)), exam.host_s or 0.0
    old, new = (eager(exam.ran, one, host_of(one)) for one in (own, device))
    slower = device.dram_bytes_per_s / own.dram_bytes_per_s
    compute = bandwidth = busy = 0.0
    family_s: dict[Family, float] = {}
    for kernel in exam.kernels:
        index = exam.index(kernel)
        ratio, of = _ratio(old[index], new[index]) if index is not None else (None, None)
        seconds = kernel.seconds * (1 / slower if ratio is None else ratio)
        busy += seconds
        family = Family.STREAM if of is None else of.family
        family_s[family] = family_s.get(family, 0.0) + seconds
        work_s = seconds if of is None else seconds * of.estimate.working
        if of is not None and of.estimate.compute_s >= of.estimate.memory_s:
            compute += work_s
        else:
            bandwidth += work_s
    measured_busy = sum(kernel.seconds for kernel in exam.kernels)
    apart = max(0.0, exam.step_s - max(host_s, measured_busy))
    step_s = host_s + busy if exam.serial else max(host_s, busy) + apart
    family_s[Family.HOST] = max(0.0, step_s - busy)
    return Step(step_s, host_s, busy, compute, bandwidth, max(0.0, step_s - compute - bandwidth), family_s)


def rescaled(measured: Step, before: Step, after: Step, *, serial: bool) -> float:
    """Seconds of a changed step: host and device each by what the model says of the change."""
    host_s = measured.host_s * after.host_s / before.host_s
    device_s = measured.device_s * after.device_s / before.device_s
    if serial:
        return host_s + device_s
    return max(host_s, device_s) + measured.step_s - max(measured.host_s, measured.device_s)


def anchor(exam: Exam) -> Sequence[Op]:
    """The program's ops, or of a trace those that ran."""
    ops = exam.ran if exam.program is None else exam.program.ops
    if not ops or not exam.kernels or not exam.host_s:
        raise BadInput(f"{exam.target} holds no ops with their kernels and no host's time: examine the workload itself")
    return ops


def own_sheet(exam: Exam) -> Datasheet:
    sheet = datasheets.find(exam.ceilings.device)
    if sheet is None:
        raise BadInput(f"the Exam is of {exam.ceilings.device}, of which there is no datasheet to scale from")
    return sheet


def _ratio(old: Issued, new: Issued) -> tuple[float | None, Kernel]:
    before, after = old.kernel.estimate.seconds, new.kernel.estimate.seconds
    return (after / before if before else None), new.kernel
