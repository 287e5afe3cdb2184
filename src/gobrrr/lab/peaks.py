"""What the machine can do: matrix and vector rates, bandwidth, and the intensity at which they meet."""

from dataclasses import dataclass

from gobrrr import units
from gobrrr.lab.claim import Check, Claim, judged, near
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import Site
from gobrrr.machine import Ceilings, datasheets
from gobrrr.machine.datasheets import Datasheet

CLAIMED_MODES = ("bf16", "fp16", "tf32", "fp32")
"""What the article compares: the fastest product that trains models there; an A100 has no fp8."""

A100_OPERATIONS_PER_ELEMENT = 780
A100_RIDGE = 208


@dataclass(frozen=True, slots=True)
class Peak:
    name: str
    flops_per_s: float
    datasheet: float | None
    of_datasheet: float | None
    ridge: float | None
    """FLOPs per byte of memory."""


@experiment("what can this machine do at most, and where do arithmetic and bandwidth meet?", "c01", "c05", "c06")
def peaks(site: Site) -> Found:
    ceilings = site.ceilings("matmul", "vector", "dram")
    points = rates(ceilings, datasheets.find(ceilings.device))
    return Found(points, judge(points, ceilings.dram_bytes_per_s), (_BARS,))


def rates(ceilings: Ceilings, sheet: Datasheet | None) -> list[Peak]:
    said = {} if sheet is None else sheet.rates
    keys = {mode: f"matmul_flops_per_s.{mode}" for mode in ceilings.matmul_flops_per_s}
    keys |= {f"vector {dtype}": f"vector_flops_per_s.{dtype}" for dtype in ceilings.vector_flops_per_s}
    return [_peak(name, ceilings.value(key), said.get(key), ceilings.dram_bytes_per_s) for name, key in keys.items()]


def _peak(name: str, rate: float | None, said: float | None, bytes_per_s: float | None) -> Peak:
    assert rate is not None
    return Peak(name, rate, said, rate / said if said else None, rate / bytes_per_s if bytes_per_s else None)


def judge(points: list[Peak], bytes_per_s: float | None) -> tuple[Claim, ...]:
    matrix = max((point for point in points if point.name in CLAIMED_MODES), key=lambda one: one.flops_per_s)
    vector = next(point for point in points if point.name == "vector fp32")
    ratio = matrix.flops_per_s / vector.flops_per_s
    ridge = matrix.ridge
    per_element = None if ridge is None else 4 * ridge
    units_of = "the same units do both" if ratio < 2 else "products have units of their own"
    rates_said = f"{matrix.name} products {units.flops_per_s(matrix.flops_per_s)}, vector fp32 "
    rates_said += units.flops_per_s(vector.flops_per_s)
    where = f"{units.flops_per_s(matrix.flops_per_s)} over {units.bytes_per_s(bytes_per_s)}"
    return (
        judged(
            "c01",
            units.times(ratio),
            [Check("matrix over vector rate, half of 15 at least", ratio, low=7.5)],
            f"{rates_said}: {units_of}",
        ),
        judged(
            "c05",
            f"{units.count(per_element)} operations per fp32 element",
            [near("operations per element, against 780", per_element, A100_OPERATIONS_PER_ELEMENT, 2)],
            f"{where}, 4 bytes an element{_faster_than_memory(per_element, A100_OPERATIONS_PER_ELEMENT)}",
        ),
        judged(
            "c06",
            units.per_byte(ridge),
            [near("ridge in FLOP/B, against 208", ridge, A100_RIDGE, 1.5)],
            f"{where}{_faster_than_memory(ridge, A100_RIDGE)}",
        ),
    )


def _faster_than_memory(value: float | None, a100: float) -> str:
    if value is None or a100 / 2 <= value <= a100 * 2:
        return ""
    rather = "less" if value < a100 else "more"
    return f": {rather} arithmetic for each byte than an A100 has, by {units.times(max(a100 / value, value / a100), 2)}"


_BARS = Drawing(
    "bars",
    "rates",
    Column("name", "what"),
    Column("flops_per_s", "measured", "FLOP/s"),
    (
        Column("datasheet", "datasheet", "FLOP/s"),
        Column("of_datasheet", "of it", "%"),
        Column("ridge", "ridge", "FLOP/B"),
    ),
)
