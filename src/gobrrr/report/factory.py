"""The article's picture, from this run's own numbers: warehouse, road, factory floor, administration."""

from dataclasses import dataclass

from gobrrr import units
from gobrrr.diagnose.diagnosis import MOST_UNCOUNTED, Diagnosis
from gobrrr.diagnose.regime import Regime
from gobrrr.exam import Exam

TRUCKS = 7
"""On a road that is full for the whole step."""
MACHINES = 12
PAPERS = 9


@dataclass(frozen=True, slots=True)
class FactoryView:
    bytes: float | None
    """That left the warehouse."""
    bytes_per_s: float | None
    """While the device was busy."""
    road_bytes_per_s: float | None
    """What the road can carry."""
    flops: float | None
    flops_per_s: float | None
    floor_flops_per_s: float | None
    """What the factory floor can do, in the mode that most of the work asks for."""
    mode: str | None
    orders: int
    """Kernels that the administration asked for."""
    bandwidth: float
    compute: float
    overhead: float
    """Shares of the step."""
    trucks: int
    machines: int
    papers: int
    """How many are drawn."""
    note: str | None
    """What is in none of the houses, if it is much."""


def factory_view(exam: Exam, diagnosis: Diagnosis) -> FactoryView:
    shares = {regime.value: diagnosis.seconds[regime] / diagnosis.step_s for regime in Regime}
    mode = _mode(exam)
    busy_s = diagnosis.busy_s
    known = diagnosis.seconds["uncounted"] <= MOST_UNCOUNTED * busy_s  # else the little that is would pass for all
    moved, flops = (diagnosis.bytes, diagnosis.flops) if known else (None, None)
    return FactoryView(
        bytes=moved,
        bytes_per_s=_rate(moved, busy_s),
        road_bytes_per_s=exam.ceilings.dram_bytes_per_s,
        flops=flops,
        flops_per_s=_rate(flops, busy_s),
        floor_flops_per_s=None if mode is None else exam.ceilings.matmul_flops_per_s.get(mode),
        mode=mode,
        orders=len(exam.kernels),
        bandwidth=shares["bandwidth"],
        compute=shares["compute"],
        overhead=shares["overhead"],
        trucks=_drawn(shares["bandwidth"], TRUCKS),
        machines=_drawn(shares["compute"], MACHINES),
        papers=_drawn(shares["overhead"], PAPERS),
        note=None if known else f"{units.percent(shares['uncounted'], 0)} of the step is work that nobody counted",
    )


def _rate(amount: float | None, seconds: float) -> float | None:
    return None if amount is None or not seconds else amount / seconds


def _drawn(share: float, most: int) -> int:
    """None only where there is nothing."""
    return 0 if share <= 0 else max(1, round(share * most))


def _mode(exam: Exam) -> str | None:
    flops: dict[str, float] = {}
    for op in exam.ran:
        for mode, number in (op.work.matrix if op.work is not None else {}).items():
            flops[mode] = flops.get(mode, 0.0) + number
    return max(flops, key=flops.__getitem__, default=None)
