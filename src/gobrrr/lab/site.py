"""The site of an experiment: the device, how much to do on it, and the product's own instruments."""

from collections.abc import Callable
from dataclasses import dataclass

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.diagnose.floor import Floor, floor, op_floors
from gobrrr.diagnose.fusion import groups
from gobrrr.diagnose.residency import residency
from gobrrr.examination import examine, needed_probes
from gobrrr.lab.sizes import Sizes
from gobrrr.machine import Ceilings, measured
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.steady import time_steps
from gobrrr.work.program import Program
from gobrrr.work.work import total
from gobrrr.workload import Step


class NotHere(Exception):
    """This machine cannot do it; the sentence says why."""


def known(value: float | None, what: str) -> float:
    """What an experiment cannot do without."""
    if not value:
        raise NotHere(f"{what} could not be measured on this machine")
    return value


@dataclass(frozen=True, slots=True)
class Weighed:
    """A step's time beside its work."""

    seconds: float
    flops: float
    """As reported: one per element and function."""
    bytes: float
    floor_s: float | None
    regime: str
    """Of a step weighed alone, that of the larger part of its floor."""
    limiter: str | None = None
    host_s: float | None = None
    device_s: float | None = None
    overhead: float | None = None
    """Of the step, as a share."""


@dataclass(frozen=True, slots=True)
class Site:
    device: str
    """As torch spells it."""
    sizes: Sizes
    tell: Callable[[str], None]

    @property
    def is_cuda(self) -> bool:
        return self.device.startswith("cuda")

    def ceilings(self, *probes: str) -> Ceilings:
        self.tell("the ceilings")
        return measured(self.device, only=probes)

    def seconds(self, step: Step, device: str | None = None) -> float:
        """T, of a step whose work does not matter."""
        return time_steps(step, DeviceClock(device or self.device), self.sizes.effort).windows.median

    def weighed(self, step: Step, what: str, *, fused: bool = False) -> Weighed:
        """T without a profiler, and the floor of the program as it is written or after ideal fusion."""
        from gobrrr.work.counter import counted_program

        self.tell(what)
        seconds = self.seconds(step)
        program = counted_program(step)
        return _weighed(program, measured(self.device, only=needed_probes(program)), seconds, fused=fused)

    def examined(self, step: Step, what: str) -> Weighed:
        """Through the whole product: counted, timed, recorded and diagnosed."""
        self.tell(what)
        diagnosis = diagnose(examine(lambda: step, what, effort=self.sizes.effort))
        return Weighed(
            seconds=diagnosis.step_s,
            flops=diagnosis.flops or 0.0,
            bytes=diagnosis.bytes or 0.0,
            floor_s=diagnosis.as_run_floor_s,
            regime=diagnosis.regime,
            limiter=diagnosis.limiter,
            host_s=diagnosis.host_s,
            device_s=diagnosis.device_s,
            overhead=None if diagnosis.shares is None else diagnosis.shares["overhead"],
        )


def _weighed(program: Program, ceilings: Ceilings, seconds: float, *, fused: bool) -> Weighed:
    floors = _fused_floors(program, ceilings) if fused else op_floors(program.ops, ceilings)
    works = [group.work for group in groups(program.ops)] if fused else [op.work for op in program.ops]
    work = total(work for work in works if work is not None)
    known = [one for one in floors if one is not None]
    regimes = {one.regime.value: sum(other.seconds for other in known if other.regime is one.regime) for one in known}
    return Weighed(
        seconds=seconds,
        flops=work.flops,
        bytes=work.bytes,
        floor_s=sum(one.seconds for one in known) if len(known) == len(floors) else None,
        regime=max(regimes, key=regimes.__getitem__, default="unknown"),
    )


def _fused_floors(program: Program, ceilings: Ceilings) -> list[Floor | None]:
    fused = groups(program.ops)
    traffics = residency([group.accesses for group in fused], ceilings.cache_bytes)
    return [floor(group.work, traffic, ceilings) for group, traffic in zip(fused, traffics, strict=True)]
