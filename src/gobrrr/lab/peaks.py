"""What the machine can do: matrix and vector rates, bandwidth, and the intensity at which they meet."""

from collections.abc import Sequence
from dataclasses import dataclass

from gobrrr import units
from gobrrr.lab.claim import Check, Claim, judged, near
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import Site, known
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
    ridge: float
    """FLOPs per byte of memory."""


@experiment("what can this machine do at most, and where do arithmetic and bandwidth meet?", "c01", "c05", "c06")
def peaks(site: Site) -> Found:
    ceilings = site.ceilings("matmul", "vector", "dram")
    known(ceilings.vector_flops_per_s.get("fp32"), "the vector rate")
    points = rates(ceilings, datasheets.find(ceilings.device))
    return Found(points, judge(points), (_BARS,))


def rates(ceilings: Ceilings, sheet: Datasheet | None) -> list[Peak]:
    memory = known(ceilings.dram_bytes_per_s, "memory bandwidth")
    said = {} if sheet is None else sheet.rates
    measured = {f"matmul_flops_per_s.{mode}": (mode, rate) for mode, rate in ceilings.matmul_flops_per_s.items()}
    for dtype, rate in ceilings.vector_flops_per_s.items():
        measured[f"vector_flops_per_s.{dtype}"] = f"vector {dtype}", rate
    return [
        Peak(name, rate, said.get(key), rate / said[key] if key in said else None, rate / memory)
        for key, (name, rate) in measured.items()
    ]


def judge(points: Sequence[Peak]) -> tuple[Claim, ...]:
    matrix = max((point for point in points if point.name in CLAIMED_MODES), key=lambda point: point.flops_per_s)
    vector = next(point for point in points if point.name == "vector fp32")
    ratio, per_element = matrix.flops_per_s / vector.flops_per_s, 4 * matrix.ridge
    return (
        judged(
            "c01",
            units.times(ratio),
            [Check("matrix over vector rate, half of 15 at least", ratio, low=7.5)],
            f"{matrix.name} products {units.flops_per_s(matrix.flops_per_s)}, vector fp32 "
            f"{units.flops_per_s(vector.flops_per_s)}: "
            + ("the same units do both" if ratio < 2 else "products have units of their own"),
        ),
        judged(
            "c05",
            f"{units.count(per_element)} operations per fp32 element",
            [near("operations per element, against 780", per_element, A100_OPERATIONS_PER_ELEMENT, 2)],
            f"4 bytes an element, {_beside_a100(matrix)}",
        ),
        judged(
            "c06",
            units.per_byte(matrix.ridge),
            [near("ridge in FLOP/B, against 208", matrix.ridge, A100_RIDGE, 1.5)],
            _beside_a100(matrix),
        ),
    )


def _beside_a100(matrix: Peak) -> str:
    memory = matrix.flops_per_s / matrix.ridge
    rates = f"{matrix.name} {units.flops_per_s(matrix.flops_per_s)} over {units.bytes_per_s(memory)}"
    return f"{rates}: {units.times(matrix.ridge / A100_RIDGE, 2)} an A100's arithmetic for each byte"


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
