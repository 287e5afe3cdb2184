"""The rows of a diagnosis: time by class and by op, with the Work that was done in it."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from gobrrr.diagnose.attribute import Attributed
from gobrrr.exam import Exam
from gobrrr.timing.kernel import Kernel
from gobrrr.work.op import Op, Phase
from gobrrr.work.registry import canonical
from gobrrr.work.tally import alike
from gobrrr.work.work import Work, total


@dataclass(frozen=True, slots=True)
class ClassRow:
    flops: float | None
    bytes: float | None
    """None if the work of none of it is known."""
    seconds: float
    share: float
    """Of busy time, as in the paper."""


@dataclass(frozen=True, slots=True)
class OpRow:
    name: str
    cls: str
    module: str
    phase: str
    source: str | None
    calls: int
    seconds: float
    flops: float | None
    bytes: float | None
    floor_s: float | None
    level: str | None
    regime: str
    fused_from: tuple[str, ...] | None
    """Names of the program's ops that it does; None if nobody knows."""
    shapes: tuple[tuple[int, ...], ...] | None = None
    """Of its inputs; of rows put together, those of the longest. None if nobody knows."""
    dtypes: tuple[str, ...] | None = None


def class_rows(kernels: Iterable[Attributed], busy_s: float) -> dict[str, ClassRow]:
    groups: dict[str, list[Attributed]] = defaultdict(list)
    for one in kernels:
        groups[one.cls].append(one)
    rows = {name: _class_row(group, busy_s) for name, group in groups.items()}
    return dict(sorted(rows.items(), key=lambda item: -item[1].seconds))


def _class_row(group: list[Attributed], busy_s: float) -> ClassRow:
    known = [one.work for one in group if one.work is not None]
    work = total(known)
    seconds = sum(one.seconds for one in group)
    share = seconds / busy_s if busy_s else 0.0
    return ClassRow(work.flops, work.bytes, seconds, share) if known else ClassRow(None, None, seconds, share)


def op_rows(kernels: Iterable[Attributed], exam: Exam) -> tuple[OpRow, ...]:
    """Grouped by name, what it does of the program, shapes, types, module, phase and line; the longest first."""
    groups: dict[tuple[object, ...], list[Attributed]] = defaultdict(list)
    for one in kernels:
        op = one.op
        looks = None if op is None else (tuple(ref[2::2] for ref in op.inputs), op.module, op.phase, op.source)
        groups[one.kernel.name, _program_names(one.kernel, op, exam), looks].append(one)
    return tuple(sorted((_op_row(group, exam) for group in groups.values()), key=lambda row: -row.seconds))


def _op_row(group: list[Attributed], exam: Exam) -> OpRow:
    first, op = group[0], group[0].op
    known = [one.work for one in group if one.work is not None]
    work: Work | None = total(known) if len(known) == len(group) else None
    floors = [one.floor.seconds for one in group if one.floor is not None]
    return OpRow(
        name=first.kernel.name,
        cls=first.cls.value,
        module=first.module,
        phase=(Phase.OTHER if op is None else op.phase).value,
        source=None if op is None else op.source,
        calls=len(group),
        seconds=sum(one.seconds for one in group),
        flops=None if work is None else work.flops,
        bytes=None if work is None else work.bytes,
        floor_s=sum(floors) if len(floors) == len(group) else None,
        level=None if first.floor is None else first.floor.level.value,
        regime=first.regime.value,
        fused_from=_program_names(first.kernel, op, exam),
        shapes=None if op is None else tuple(ref.shape for ref in op.inputs),
        dtypes=None if op is None else tuple(ref.dtype for ref in op.inputs),
    )


def _program_names(kernel: Kernel, op: Op | None, exam: Exam) -> tuple[str, ...] | None:
    if exam.program is None:
        return None if op is None else (op.name,)
    if kernel.fused_from is None:
        return None
    return tuple(exam.program.ops[index].name for index in kernel.fused_from)


def layers_as_one(rows: Iterable[OpRow]) -> list[OpRow]:
    """Rows that differ by the number of their layer, or by the kernel that was chosen, are one; the longest first."""
    groups: dict[tuple[object, ...], list[OpRow]] = defaultdict(list)
    for row in rows:
        groups[kind_of(row)].append(row)
    return sorted((_as_one(group) for group in groups.values()), key=lambda row: -row.seconds)


def kind_of(row: OpRow) -> tuple[object, ...]:
    """What rows have in common that `layers_as_one` puts together."""
    return _kind(row.name, row.fused_from, row.module, row.phase, row.source)


def kind_of_kernel(kernel: Kernel, exam: Exam) -> tuple[object, ...]:
    """The same of one kernel: by it, a kernel finds its row."""
    index = exam.index(kernel)
    op = None if index is None else exam.ran[index]
    names = _program_names(kernel, op, exam)
    if op is None:
        return _kind(kernel.name, names, "", Phase.OTHER.value, None)
    return _kind(kernel.name, names, op.module, op.phase.value, op.source)


def _kind(
    kernel: str, names: tuple[str, ...] | None, module: str, phase: str, source: str | None
) -> tuple[object, ...]:
    done = kernel if names is None else tuple(canonical(name) for name in names)
    return done, alike(module), phase, source


def _as_one(group: Sequence[OpRow]) -> OpRow:
    first = max(group, key=lambda row: row.seconds)
    return replace(
        first,
        module=alike(first.module),
        calls=sum(row.calls for row in group),
        seconds=sum(row.seconds for row in group),
        flops=_sum(row.flops for row in group),
        bytes=_sum(row.bytes for row in group),
        floor_s=_sum(row.floor_s for row in group),
    )


def _sum(parts: Iterable[float | None]) -> float | None:
    known = list(parts)
    return None if None in known else sum(part for part in known if part is not None)
