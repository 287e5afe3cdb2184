"""The compulsory floor: nothing honest is faster. A measurement below it is a bug of ours or of the clock.

Only what no rewriting of the step can avoid counts, at rates that nothing exceeds:

- Matrix FLOPs, each by the cheapest method known. A flash backward that kept its scores would form four products
  instead of five; a 3×3 convolution of stride 1 needs a quarter of its multiplications by Winograd's F(4×4, 3×3); what
  checkpointing runs again need not be run. Vector arithmetic has no such bound: functions can be approximated.
- Bytes that were there before the step and that it reads, and those of them that it leaves changed: parameters,
  optimizer state, inputs. Activations and gradients might all stay on the chip, and so might a whole cache of these.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from gobrrr.diagnose.flow import Flow, data_flow
from gobrrr.diagnose.residency import Access
from gobrrr.dtypes import MATRIX_MODES, WIDER
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet
from gobrrr.work.op import Op, OpClass
from gobrrr.work.program import Program
from gobrrr.work.registry import canonical

MARGIN = 1.1
"""How far a measured ceiling may lie below the true one; the best probes reach 0.9 of a datasheet's bandwidth."""

WINOGRAD = 4
"""Multiplications saved by F(4×4, 3×3): 16 outputs of 9 products each, 144, from 36."""


@dataclass(frozen=True, slots=True)
class CompulsoryFloor:
    seconds: float | None
    """The longer of the two terms. One that is unknown only lowers it; None if both are."""
    compute_s: float | None
    bytes_s: float | None
    flops: Mapping[str, float]
    bytes: float


def compulsory_floor(program: Program, ceilings: Ceilings, datasheet: Datasheet | None = None) -> CompulsoryFloor:
    """Over the whole step, as if all of its arithmetic and all of its traffic ran at the same time."""
    flops, nbytes = needed_flops(program.ops), old_bytes(data_flow(program.ops))
    compute_s = _compute_s(flops, ceilings, datasheet)
    bytes_s = _bytes_s(nbytes, ceilings, datasheet)
    known = [seconds for seconds in (compute_s, bytes_s) if seconds is not None]
    return CompulsoryFloor(max(known, default=None), compute_s, bytes_s, flops, nbytes)


def needed_flops(ops: Iterable[Op]) -> dict[str, float]:
    """Matrix FLOPs by mode, by the cheapest method known for each op."""
    needed: defaultdict[str, float] = defaultdict(float)
    for op in ops:
        if op.work is not None and op.launches and not op.recomputed:
            share = needed_share(op)
            for mode, flops in op.work.matrix.items():
                needed[mode] += share * flops
    return dict(needed)


def needed_share(op: Op) -> float:
    """Of an op's counted matrix FLOPs, those that every method needs."""
    if op.cls is not OpClass.CONTRACTION:
        return 1.0
    name = canonical(op.name)
    if "attention" in name and name.endswith("backward"):
        return _without_recomputing(op)
    return 1 / WINOGRAD if "conv" in name and _is_3x3_of_stride_1(op) else 1.0


def _without_recomputing(op: Op) -> float:
    """Counted are 3·D + 2·E per score; without the product that is formed again, 2·D + 2·E: two forwards.

    Where shapes cannot tell, E is 0 and two of three remain.
    """
    heads = [ref.shape[-1] for ref in op.inputs[1:4:2] if ref.shape]
    if len(heads) < 2 or not any(heads):
        return 2 / 3
    head, value_head = heads
    return (2 * head + 2 * value_head) / (3 * head + 2 * value_head)


def _is_3x3_of_stride_1(op: Op) -> bool:
    """A stride of 1 leaves an image of at least its size less 2; larger strides halve it, but for tiny images.

    Forward takes image and weight and gives an image; backward takes the image's gradient, the image and the weight.
    Where shapes cannot tell, the smaller count holds.
    """
    refs = op.inputs[:3] if "backward" in op.name else (*op.outputs[:1], *op.inputs[:2])
    if [len(ref.shape) for ref in refs] != [4, 4, 4]:
        return False
    result, image, weight = refs
    grown = all(after >= before - 2 for after, before in zip(result.shape[2:], image.shape[2:], strict=True))
    return grown and weight.shape[2:] == (3, 3)


def old_bytes(flow: Flow) -> float:
    """Bytes that were there before the step: read, and left changed."""
    read: defaultdict[int, list[Access]] = defaultdict(list)
    for some in flow.reads:
        for one in some:
            nbytes = sum(part for part, value in one.parts if value is None)
            if nbytes and one.access.storage is not None:
                read[one.access.storage].append(one.access._replace(nbytes=nbytes))
    changed: defaultdict[int, list[Access]] = defaultdict(list)
    for made in flow.makes:
        for value in made:
            storage = value.access.storage
            if storage is not None and storage in read and value.outlives_step:
                changed[storage].append(value.access)
    return sum(map(least_bytes, (*read.values(), *changed.values())))


def least_bytes(stretches: Iterable[Access]) -> float:
    """Of one storage: stretches that do not overlap add up; of those that do, the one with most bytes counts."""
    counted, most, end = 0.0, 0.0, float("-inf")
    for access in sorted(stretches, key=lambda access: access.start):
        if access.start >= end:
            counted, most = counted + most, 0.0
        most, end = max(most, access.nbytes), max(end, access.stop)
    return counted + most


def _compute_s(flops: Mapping[str, float], ceilings: Ceilings, datasheet: Datasheet | None) -> float | None:
    """At the rate of a mode or of a wider one: what is emulated need not be."""
    measured, sheet = ceilings.matmul_flops_per_s, datasheet.matmul_flops_per_s if datasheet else {}
    best = {mode: _best(measured.get(mode), sheet.get(mode)) for mode in MATRIX_MODES}
    if any(best.get(mode) is None for mode in flops):
        return None
    fastest = {mode: max(best.get(one) or 0.0 for one in (mode, *WIDER.get(mode, ()))) for mode in flops}
    return sum(number / fastest[mode] for mode, number in flops.items() if fastest[mode])


def _bytes_s(nbytes: float, ceilings: Ceilings, datasheet: Datasheet | None) -> float | None:
    """What fits into the cache may have stayed there since the step before; a cache of unknown size may hold all."""
    rate = _best(ceilings.dram_bytes_per_s, datasheet.dram_bytes_per_s if datasheet else None)
    sizes = (ceilings.cache_bytes, datasheet.last_level_cache_bytes if datasheet else None)
    known = [size for size in (*sizes, datasheet.l2_bytes if datasheet else None) if size is not None]
    if rate is None or not known:
        return None
    return max(0.0, nbytes - max(known)) / rate


def _best(measured: float | None, promised: float | None) -> float | None:
    """What nothing exceeds: the vendor's figure, unless more was measured; without one, the measured with a margin."""
    if promised is not None:
        return max(promised, measured or 0)
    return measured * MARGIN if measured is not None else None
