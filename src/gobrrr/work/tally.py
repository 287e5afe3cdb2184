"""The Tally of a program: its Work by class, phase, module and op, in the JSON that `gobrrr count` prints."""

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.program import Program
from gobrrr.work.work import total

_NUMBERED = re.compile(r"^([A-Z]\w*_)\d+$")


@dataclass(frozen=True, slots=True)
class Share:
    """A part of the step. FLOPs are the needed ones, matrix and vector; None where no call's work is known."""

    calls: int = 0
    unknown_calls: int = 0
    """Of unknown work: the sums are then without them, and lower than the truth."""
    flops: float | None = 0
    flops_dense: float | None = 0
    bytes: float | None = 0

    def __add__(self, other: "Share") -> "Share":
        return Share(
            self.calls + other.calls,
            self.unknown_calls + other.unknown_calls,
            _sum(self.flops, other.flops),
            _sum(self.flops_dense, other.flops_dense),
            _sum(self.bytes, other.bytes),
        )


def _sum(one: float | None, other: float | None) -> float | None:
    return one if other is None else other if one is None else one + other


@dataclass(frozen=True, slots=True)
class OpRow:
    """Calls that are alike: same name, shapes, types, module, phase and line."""

    name: str
    cls: OpClass
    module: str
    phase: str
    source: str | None
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    calls: int
    flops: float | None
    flops_dense: float | None
    bytes: float | None
    intensity: float | None
    counted_by: CountedBy


@dataclass(frozen=True, slots=True)
class Tally:
    SCHEMA: ClassVar[str] = "count"
    VERSION: ClassVar[int] = 1

    flops: float
    """Needed: matrix FLOPs with causal attention halved, and one per element and function of the rest."""
    flops_dense: float
    """Matrix FLOPs only, causal attention in full: the convention of torch.utils.flop_counter and of MFU."""
    matrix_flops: Mapping[str, float]
    """The needed ones by math mode."""
    vector_flops: float
    bytes: float
    bytes_read: float
    bytes_written: float
    classes: Mapping[str, Share]
    phases: Mapping[str, Share]
    modules: Mapping[str, Share]
    """Each module with all that it holds; a share of a parent includes its children's."""
    coverage: Mapping[str, float]
    """Fractions of kernel-launching calls: by formula, by default, unknown."""
    defaults: Mapping[str, int]
    """Calls of the ops counted by default, by name."""
    unknowns: Mapping[str, int]
    peak_memory_bytes: int
    resident_memory_bytes: int
    saved_activation_bytes: int
    saved_by_module: Mapping[str, int]
    recomputed_flops_dense: float
    """What checkpointing runs again; MFU leaves it out."""
    ops: tuple[OpRow, ...]


def tally(program: Program) -> Tally:
    launched = [op for op in program.ops if op.launches]
    everything = total(op.work for op in launched if op.work is not None)
    return Tally(
        flops=everything.flops,
        flops_dense=everything.flops_dense,
        matrix_flops=everything.matrix,
        vector_flops=everything.vector_flops,
        bytes=everything.bytes,
        bytes_read=everything.bytes_read,
        bytes_written=everything.bytes_written,
        classes={**shares(launched, lambda op: [op.cls.value]), **_none_of(OpClass, launched, "cls")},
        phases={**shares(launched, lambda op: [op.phase.value]), **_none_of(Phase, launched, "phase")},
        modules=shares(launched, lambda op: enclosing(op.module)),
        coverage=coverage(launched),
        defaults=_calls(launched, CountedBy.DEFAULT),
        unknowns=_calls(launched, CountedBy.UNKNOWN),
        peak_memory_bytes=program.memory.peak_bytes,
        resident_memory_bytes=program.memory.resident_bytes,
        saved_activation_bytes=program.memory.saved_bytes,
        saved_by_module=_with_enclosing(program.memory.saved_by_module),
        recomputed_flops_dense=sum(op.work.flops_dense for op in launched if op.recomputed and op.work is not None),
        ops=rows(launched),
    )


def shares(ops: Iterable[Op], keys: Callable[[Op], Iterable[str]]) -> dict[str, Share]:
    """The Work of each part; an op may belong to several parts, as to nested modules."""
    return summed((key, share_of(op)) for op in ops for key in keys(op))


def share_of(op: Op) -> Share:
    if op.work is None:
        return Share(1, 1, None, None, None)
    return Share(1, 0, op.work.flops, op.work.flops_dense, op.work.bytes)


def summed(pairs: Iterable[tuple[str, Share]]) -> dict[str, Share]:
    """Shares added up by name, largest in bytes first."""
    parts: dict[str, Share] = {}
    for name, share in pairs:
        parts[name] = parts[name] + share if name in parts else share
    return dict(sorted(parts.items(), key=lambda item: -(item[1].bytes or 0)))


def enclosing(module: str) -> list[str]:
    """`Net.block.0` lies in `Net`, `Net.block` and itself."""
    names = module.split(".") if module else []
    return [".".join(names[: depth + 1]) for depth in range(len(names))]


def _none_of(names: Iterable[StrEnum], launched: Iterable[Op], attribute: str) -> dict[str, Share]:
    """The parts that no op belongs to, so that every name is there."""
    present = {getattr(op, attribute) for op in launched}
    return {name.value: Share() for name in names if name not in present}


def alike(module: str) -> str:
    """Layers that differ by their number only are one: `Net.block.0` and `Net.block.1` are `Net.block.*`.

    torch's profiler knows modules by class alone, and numbers those of each: `Block_0` and `Block_1` are `Block_*`.
    """
    return ".".join("*" if part.isdigit() else _NUMBERED.sub(r"\1*", part) for part in module.split("."))


def coverage(launched: Iterable[Op]) -> dict[str, float]:
    counts = dict.fromkeys(CountedBy, 0)
    for op in launched:
        counts[op.counted_by] += 1
    everything = sum(counts.values())
    return {kind.value: number / everything if everything else 0.0 for kind, number in counts.items()}


def rows(launched: Iterable[Op]) -> tuple[OpRow, ...]:
    groups: dict[tuple[object, ...], list[Op]] = defaultdict(list)
    for op in launched:
        groups[op.name, op.cls, op.module, op.phase, op.source, *map(_look, op.inputs)].append(op)
    return tuple(sorted((_row(group) for group in groups.values()), key=lambda row: -(row.bytes or 0)))


def _row(group: list[Op]) -> OpRow:
    first = group[0]
    known = [op.work for op in group if op.work is not None]
    work = total(known) if len(known) == len(group) else None
    return OpRow(
        name=first.name,
        cls=first.cls,
        module=first.module,
        phase=first.phase.value,
        source=first.source,
        shapes=tuple(ref.shape for ref in first.inputs),
        dtypes=tuple(ref.dtype for ref in first.inputs),
        calls=len(group),
        flops=work.flops if work else None,
        flops_dense=work.flops_dense if work else None,
        bytes=work.bytes if work else None,
        intensity=work.intensity if work else None,
        counted_by=first.counted_by,
    )


def _look(ref: TensorRef) -> tuple[tuple[int, ...], str]:
    return ref.shape, ref.dtype


def _calls(launched: Iterable[Op], kind: CountedBy) -> dict[str, int]:
    names: dict[str, int] = defaultdict(int)
    for op in launched:
        if op.counted_by is kind:
            names[op.name] += 1
    return dict(sorted(names.items(), key=lambda item: -item[1]))


def _with_enclosing(by_module: Mapping[str, int]) -> dict[str, int]:
    summed: dict[str, int] = defaultdict(int)
    for module, nbytes in by_module.items():
        for name in enclosing(module):
            summed[name] += nbytes
    return dict(sorted(summed.items(), key=lambda item: -item[1]))
