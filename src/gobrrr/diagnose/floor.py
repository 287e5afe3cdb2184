"""The floor of an op: the least time in which the ceilings allow its Work, and what the rest of its time was."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from gobrrr.diagnose.regime import Regime
from gobrrr.diagnose.residency import Traffic, accesses, residency
from gobrrr.machine.ceilings import Ceilings
from gobrrr.work.op import Op
from gobrrr.work.work import Work

ABOVE = 1.05
"""Of a ceiling: up to here a measurement's spread explains it; beyond, the ceiling or the count is wrong."""


class Level(StrEnum):
    """The part of the machine that is busy for as long as the floor lasts."""

    MATRIX = "matrix"
    VECTOR = "vector"
    DRAM = "dram"
    CACHE = "cache"


class Floor(NamedTuple):
    seconds: float
    regime: Regime
    level: Level

    def fraction(self, seconds: float) -> float:
        """Of the ceiling, reached by a run of so many seconds. Never clamped: above 1 it ran faster than it can."""
        return self.seconds / seconds if seconds else float("inf")

    def is_beaten_by(self, seconds: float) -> bool:
        """Whether a run was faster than the spread of the ceilings explains: then a ceiling or the Work is wrong."""
        return self.fraction(seconds) > ABOVE


class Split(NamedTuple):
    """An op's device time in three parts that add up to it."""

    attained: float
    """What the work needs at the ceilings."""
    latency: float
    """What the shortest kernel takes anyway: overhead."""
    inefficient: float
    """The rest: the op's regime, kept apart."""


def floor(work: Work | None, traffic: Traffic | None, ceilings: Ceilings) -> Floor | None:
    """max(matrix/P, cost/V, dram/W + cache/W2), with no latency in it.

    Matrix units, vector units and memory work at the same time, so the longest decides; modes share the matrix units
    and levels share the kernel's loads, so within each the times add. A vector rate counts multiply-adds as 2 FLOPs:
    slots pass at half of it. Unknown where the Work is, or where something is counted whose ceiling is not known.
    """
    if work is None or traffic is None:
        return None
    matrix_s = _time(work.matrix, ceilings.matmul_flops_per_s)
    vector_s = _time(_slots(work, ceilings), ceilings.vector_flops_per_s)
    cache_s = _seconds(traffic.cache, ceilings.cache_bytes_per_s)
    dram_s = _seconds(traffic.dram, ceilings.dram_bytes_per_s)
    if matrix_s is None or vector_s is None or cache_s is None or dram_s is None:
        return None
    if matrix_s >= vector_s and matrix_s >= dram_s + cache_s:
        return Floor(matrix_s, Regime.COMPUTE, Level.MATRIX)
    if vector_s >= dram_s + cache_s:
        return Floor(vector_s, Regime.COMPUTE, Level.VECTOR)
    return Floor(dram_s + cache_s, Regime.BANDWIDTH, Level.CACHE if cache_s > dram_s else Level.DRAM)


def op_floors(ops: Sequence[Op], ceilings: Ceilings) -> list[Floor | None]:
    """Of each op of a step as it runs; of one that starts no kernel, nothing at all."""
    traffics = residency([accesses(op) for op in ops], ceilings.cache_bytes)
    return [
        floor(op.work if op.launches else Work(), traffic, ceilings) for op, traffic in zip(ops, traffics, strict=True)
    ]


def split(seconds: float, floor_s: float, shortest_kernel_s: float) -> Split:
    """Continuous in all three, with no cliff between a small kernel and a slow one.

    Up to the floor the time is attained; from there to the shortest kernel it is latency; the rest is inefficiency.
    A kernel whose floor exceeds the shortest kernel has no latency: it hides behind the work.
    """
    attained = min(seconds, floor_s)
    unavoidable = min(seconds, max(floor_s, shortest_kernel_s))
    return Split(attained, unavoidable - attained, seconds - unavoidable)


def _slots(work: Work, ceilings: Ceilings) -> dict[str, float]:
    """FLOPs of the multiply-add slots by the type whose rate they pass at: all but fp64 pass at fp32's."""
    flops: dict[str, float] = {}
    for arithmetic, slots in work.vector_cost(ceilings.transcendental_cost).items():
        rate = "fp64" if arithmetic == "fp64" else "fp32"
        flops[rate] = flops.get(rate, 0) + 2 * slots
    return flops


def _time(counts: Mapping[str, float], rates: Mapping[str, float]) -> float | None:
    """Each count at its own rate, one after the other."""
    together_s = 0.0
    for key, number in counts.items():
        seconds = _seconds(number, rates.get(key))
        if seconds is None:
            return None
        together_s += seconds
    return together_s


def _seconds(number: float, rate: float | None) -> float | None:
    """A rate that nothing needs may be missing."""
    return number / rate if number and rate else None if number else 0.0
