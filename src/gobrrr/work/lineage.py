"""Lineage: which ops of the program each op does that was dispatched once the program was compiled. No torch here.

Inductor names a generated kernel after the ops that went into it: `triton_per_fused_add_native_layer_norm_3`. Both
sequences follow the data, so within a phase the program is laid along what was dispatched, without ever going back,
such that the most ops find a kernel of their name. A kernel does several ops, an op that still is one does one.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from statistics import mode

from gobrrr.work.op import CountedBy, Op, OpClass, Phase, TensorRef
from gobrrr.work.registry import canonical
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work, total

NEAR = 64
"""Candidates for an op, nearest to where it would be if both sequences ran at one pace; beyond, chance decides."""

SAME_FLOPS = 0.1
"""By how much the FLOPs of a product may differ from the program's: a compiler pads odd sizes."""

_ALSO = {
    "mm": ("addmm",),
    "addmm": ("mm",),
    "bmm": ("baddbmm",),
    "baddbmm": ("bmm",),
    "mkl::_mkl_linear": ("mm", "addmm"),
    "mkldnn::_linear_pointwise": ("mm", "addmm"),
    "mkldnn::_convolution_pointwise": ("convolution",),
}
"""What an op may do of the program besides its own name: a compiler takes the bias out of a product, or puts it in, and
has products of its own."""

_LOWERED = {"addcmul": "fma"}
"""Ops that a compiler writes by another name."""

_LEADING = (
    OpClass.CONTRACTION,
    OpClass.COMMUNICATION,
    OpClass.NORMALIZATION,
    OpClass.OPTIMIZER,
    OpClass.INDEXING,
    OpClass.ELEMENTWISE,
    OpClass.MOVEMENT,
    OpClass.OTHER,
)
"""The class of a kernel that does ops of several: what is hardest to do comes first."""


@dataclass(frozen=True, slots=True)
class Dispatched:
    """What was dispatched, and of each the indices of the program's ops that it does."""

    ops: tuple[Op, ...]
    fused_from: tuple[tuple[int, ...], ...]


def as_written(program: Sequence[Op]) -> Dispatched:
    """Without a compiler each op does itself."""
    return Dispatched(tuple(program), tuple((index,) for index in range(len(program))))


def traced(program: Sequence[Op], dispatched: Sequence[Op]) -> Dispatched:
    """Each dispatched op with its lineage, and from it what only the program knows: class, module, line, FLOPs."""
    found: dict[int, list[int]] = defaultdict(list)
    for phase in Phase:
        ours, theirs = _launching(program, phase), _launching(dispatched, phase)
        for index, kernel in _aligned_again(program, dispatched, ours, theirs):
            found[kernel].append(index)
        for index, kernel in _attentions_taken_apart(program, dispatched, ours, theirs, found):
            found[kernel].append(index)
    for index, kernel in (*_across_phases(program, dispatched, found), *_enclosed(program, dispatched, found)):
        found[kernel].append(index)
    fused_from = tuple(tuple(sorted(set(found[index]))) for index in range(len(dispatched)))
    looking_up = [op for op in program if op.cls is OpClass.INDEXING]
    described = (
        _described(op, [program[i] for i in own], [one for one in looking_up if canonical(one.name) in op.name])
        for op, own in zip(dispatched, fused_from, strict=True)
    )
    return Dispatched(tuple(_placed(list(described), fused_from)), fused_from)


def _aligned_again(
    program: Sequence[Op], dispatched: Sequence[Op], ours: Sequence[int], theirs: Sequence[int]
) -> Iterator[tuple[int, int]]:
    """What a compiler has moved finds nothing at first; what is left of both is laid side by side once more."""
    while pairs := aligned([program[i] for i in ours], [dispatched[i] for i in theirs]):
        yield from ((ours[op], theirs[kernel]) for op, kernel in pairs)
        ours = [index for place, index in enumerate(ours) if place not in {op for op, _ in pairs}]
        theirs = [index for place, index in enumerate(theirs) if place not in {kernel for _, kernel in pairs}]


def _across_phases(
    program: Sequence[Op], dispatched: Sequence[Op], found: Mapping[int, list[int]]
) -> list[tuple[int, int]]:
    """A step that is compiled as a whole does not say where its phases begin."""
    done = {index for own in found.values() for index in own}
    ours = [index for index, op in enumerate(program) if op.launches and index not in done]
    theirs = [index for index, op in enumerate(dispatched) if is_generated(op) and not found.get(index)]
    return list(_aligned_again(program, dispatched, ours, theirs))


def _enclosed(program: Sequence[Op], dispatched: Sequence[Op], found: Mapping[int, list[int]]) -> list[tuple[int, int]]:
    """What has another name after compilation, between two ops that one generated kernel does, is done by it too."""
    kernel_of = {index: kernel for kernel, own in found.items() for index in own if is_generated(dispatched[kernel])}
    pairs, waiting, before = list[tuple[int, int]](), list[int](), None
    for index, op in enumerate(program):
        if index in kernel_of:
            if kernel_of[index] == before:
                pairs += [(one, kernel_of[index]) for one in waiting]
            waiting, before = [], kernel_of[index]
        elif op.launches and op.cls is not OpClass.CONTRACTION:
            waiting.append(index)
        elif op.launches:
            before = None
    return [(index, kernel) for index, kernel in pairs if not any(index in own for own in found.values())]


def is_generated(op: Op) -> bool:
    return op.name.startswith(("triton_", "cpp_"))


def aligned(program: Sequence[Op], dispatched: Sequence[Op]) -> list[tuple[int, int]]:
    """Pairs of places: the longest way through both that never goes back (Hunt and Szymanski)."""
    makers = _makers(program, dispatched)
    ends: list[int] = []
    nodes: list[_Pair] = []
    for place, op in enumerate(program):
        pace = place * len(dispatched) / len(program)
        for kernel in sorted(_candidates(op, dispatched, makers[canonical(op.name)], pace), reverse=True):
            seek = bisect_right if is_generated(dispatched[kernel]) else bisect_left
            length = seek(ends, kernel)
            pair = _Pair(place, kernel, nodes[length - 1] if length else None)
            ends[length : length + 1], nodes[length : length + 1] = [kernel], [pair]
    return list(_way_back(nodes[-1] if nodes else None))


@dataclass(frozen=True, slots=True)
class _Pair:
    op: int
    kernel: int
    before: "_Pair | None"


def _way_back(pair: _Pair | None) -> Iterator[tuple[int, int]]:
    while pair is not None:
        yield pair.op, pair.kernel
        pair = pair.before


def _makers(program: Sequence[Op], dispatched: Sequence[Op]) -> Mapping[str, list[int]]:
    """Name of an op to the places of kernels that may do it."""
    names = sorted({canonical(op.name) for op in program}, key=len, reverse=True)
    makers: dict[str, list[int]] = defaultdict(list)
    for place, op in enumerate(dispatched):
        for name in _names_in(op, names):
            makers[name].append(place)
    return makers


def _names_in(op: Op, names: Iterable[str]) -> Iterator[str]:
    """Those of a generated kernel, longest first: what is part of a longer name is not there on its own."""
    if not is_generated(op):
        name = canonical(op.name)
        yield from (name, *_ALSO.get(name, ()))
        return
    rest = f"_{op.name.partition('fused_')[2]}"
    for name in names:
        written = next((one for one in (name, _LOWERED.get(name)) if f"_{one}_" in rest), None)
        if written is not None:
            rest = rest.replace(f"_{written}_", "_ _")
            yield name


def _candidates(op: Op, dispatched: Sequence[Op], places: Sequence[int], pace: float) -> list[int]:
    first = max(0, bisect_left(places, pace) - NEAR // 2)
    return [place for place in places[first : first + NEAR] if _may_do(dispatched[place], op)]


def _may_do(kernel: Op, op: Op) -> bool:
    """A product is done by a product of its size, or by a kernel generated from a template for them."""
    if op.cls is not OpClass.CONTRACTION:
        return True
    if is_generated(kernel):
        return _multiplies(kernel)
    if kernel.work is None or op.work is None:
        return True
    wanted = op.work.matrix_flops
    return wanted * (1 - SAME_FLOPS) <= kernel.work.matrix_flops <= wanted * (1 + SAME_FLOPS)


def _multiplies(kernel: Op) -> bool:
    """Whether a generated kernel comes from a template for products."""
    return "_tem_" in kernel.name or "gemm" in kernel.name


def _attentions_taken_apart(
    program: Sequence[Op],
    dispatched: Sequence[Op],
    ours: Sequence[int],
    theirs: Sequence[int],
    found: Mapping[int, list[int]],
) -> Iterator[tuple[int, int]]:
    """Attention that the compiler wrote out: equally many products for each, and what nobody claims between them."""
    done = {index for own in found.values() for index in own}
    lost = [index for index in ours if "attention" in program[index].name and index not in done]
    products = [k for k in theirs if canonical(dispatched[k].name) == "bmm" and not found.get(k)]
    if not lost or not products or len(products) % len(lost):
        return
    each = len(products) // len(lost)
    for number, index in enumerate(lost):
        part = products[number * each : (number + 1) * each]
        yield from ((index, kernel) for kernel in theirs if part[0] <= kernel <= part[-1] and not found.get(kernel))


def _launching(ops: Sequence[Op], phase: Phase) -> list[int]:
    return [index for index, op in enumerate(ops) if op.launches and op.phase is phase]


def _described(op: Op, own: Sequence[Op], looking_up: Sequence[Op]) -> Op:
    """A generated kernel has its bytes from its operands and its FLOPs from the ops it does.

    Products are done by kernels from a template alone: what lies between those of a written-out attention is none.
    """
    lines = [part.source for part in own if part.source is not None]
    placed = replace(
        op,
        module=_common([part.module for part in own]),
        source=mode(lines) if lines else None,
        phase=mode([part.phase for part in own]) if own else op.phase,
    )
    if not is_generated(op):
        return placed if op.work is not None or not own else _as_its_ops(placed, own)
    done = own if _multiplies(op) else [part for part in own if part.cls is not OpClass.CONTRACTION]
    counted = bool(done) and all(part.counted_by is CountedBy.FORMULA for part in done)
    return replace(
        placed,
        cls=min((part.cls for part in done), key=_LEADING.index, default=_class_by_name(op.name)),
        work=_work(op, done, looking_up),
        counted_by=CountedBy.FORMULA if counted else CountedBy.DEFAULT,
    )


def _as_its_ops(op: Op, own: Sequence[Op]) -> Op:
    """An op of a compiler's own that nobody has a formula for does what its ops would do."""
    work = total(part.work for part in own if part.work is not None)
    return replace(op, cls=min((part.cls for part in own), key=_LEADING.index), work=work, counted_by=CountedBy.DEFAULT)


def _class_by_name(name: str) -> OpClass:
    reduces = any(word in name for word in ("_red_", "_per_"))
    return OpClass.NORMALIZATION if reduces else OpClass.ELEMENTWISE if "_poi_" in name else OpClass.OTHER


def _work(kernel: Op, own: Sequence[Op], looking_up: Sequence[Op]) -> Work:
    done = total(op.work for op in own if op.work is not None)
    return replace(
        done,
        bytes_read=sum(_touched(ref, own, looking_up, "bytes_read") for ref in dict.fromkeys(kernel.inputs)),
        bytes_written=sum(_touched(ref, own, looking_up, "bytes_written") for ref in dict.fromkeys(kernel.outputs)),
    )


def _touched(operand: TensorRef, own: Sequence[Op], looking_up: Sequence[Op], which: str) -> float:
    """All of an operand, but of a table that an op in its name looks up rows in no more than that op touches.

    A kernel is given whole tensors where it works on a part of one. What is larger than anything of its type that its
    ops touch is such a tensor, and no more than the largest of those is touched of it.
    """
    parts = [ref.unique_bytes for op in own for ref in (*op.inputs, *op.outputs) if ref.dtype == operand.dtype]
    rows = [
        float(getattr(op.work, which))
        for op in looking_up
        if op.work and any(_alike(ref, operand) for ref in (*op.inputs, *op.outputs))
    ]
    return min([distinct_bytes([operand]), *rows, *([max(parts)] if parts else [])])


def _alike(one: TensorRef, other: TensorRef) -> bool:
    return (one.shape, one.dtype) == (other.shape, other.dtype)


def _placed(ops: Sequence[Op], fused_from: Sequence[tuple[int, ...]]) -> Iterator[Op]:
    """What has no lineage lies in the module that what comes before and behind it share."""
    before = behind = ""
    following: list[str] = []
    for op, own in zip(reversed(ops), reversed(fused_from), strict=True):
        behind = op.module if own else behind
        following.append(behind)
    for op, own, behind in zip(ops, fused_from, reversed(following), strict=True):
        before = op.module if own else before
        yield op if own else replace(op, module=_common([before, behind]))


def _common(modules: Sequence[str]) -> str:
    levels = zip(*(module.split(".") for module in modules), strict=False)
    return ".".join(level[0] for level in takewhile(lambda level: len(set(level)) == 1, levels))
