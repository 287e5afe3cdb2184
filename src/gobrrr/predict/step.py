"""A step: its kernels on the device's timeline, its ops on the host's, and where the time would go."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from gobrrr.diagnose.fusion import Group, groups
from gobrrr.diagnose.residency import Traffic, accesses, residency
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.host import Host, Issued, simulated
from gobrrr.predict.kernels import Kernel, kernel
from gobrrr.predict.spread import Family
from gobrrr.work.op import Op
from gobrrr.work.program import Program


class Variant(StrEnum):
    EAGER = "eager"
    COMPILED = "compiled"
    GRAPHED = "graphed"
    """Eager kernels, replayed by the device."""
    COMPILED_GRAPHED = "compiled graphed"


@dataclass(frozen=True, slots=True)
class Step:
    step_s: float
    host_s: float
    device_s: float
    """Busy, and the gaps between queued kernels."""
    compute_s: float
    bandwidth_s: float
    overhead_s: float
    """Idle time and what kernels take beyond their work."""
    family_s: dict[Family, float]


def step(program: Program, accelerator: Accelerator, host: Host, variant: Variant = Variant.EAGER) -> Step:
    is_compiled = variant in (Variant.COMPILED, Variant.COMPILED_GRAPHED)
    issued = compiled(program.ops, accelerator, host) if is_compiled else eager(program.ops, accelerator, host)
    if variant in (Variant.GRAPHED, Variant.COMPILED_GRAPHED):
        issued = [one._replace(host_s=0.0) for one in issued]
    return summed(issued, accelerator, host, graphed=variant in (Variant.GRAPHED, Variant.COMPILED_GRAPHED))


def eager(ops: Sequence[Op], accelerator: Accelerator, host: Host) -> list[Issued]:
    traffics = residency([accesses(op) for op in ops], accelerator.cache_bytes)
    return [
        Issued(host.op_s(op), kernel(op, traffic, accelerator), op)
        for op, traffic in zip(ops, traffics, strict=True)
    ]
