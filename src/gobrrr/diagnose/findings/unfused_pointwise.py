"""B201: chains of pointwise and row-wise ops in which each kernel writes to memory what the next one reads back."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.floor import floor
from gobrrr.diagnose.flow import Flow
from gobrrr.diagnose.fusion import Group
from gobrrr.diagnose.kinds import Kind, kind
from gobrrr.diagnose.residency import Traffic
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import moved, seconds
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.registry import canonical
from gobrrr.work.work import total

SHOWN = 4
"""Patterns listed. A model repeats a handful of chains in all its layers; what follows them is small."""

NAMED = 6
"""Ops of a chain that are called by name."""


@dataclass(frozen=True, slots=True)
class Chain:
    """Ops of one group that ran as several kernels, each unit being what ran together."""

    units: tuple[tuple[int, ...], ...]
    seconds: float
    saved_s: float
    bytes: float
    bytes_fused: float


@finding(
    "B201",
    "unfused pointwise chain",
    explanation=(
        "Each of these kernels reads from memory what the one before it has just written there. Done as one kernel, "
        "the chain reads its inputs and writes its results once. The gain counted is the share of each kernel's time "
        "that moves such bytes, at the rate it really ran, and never below what the arithmetic needs; products stay "
        "as they are."
    ),
    reads="ops of the program that one kernel could do and several did, with the bytes that passed between them",
    treatment="torch.compile the module",
    fix="""
    model.compile()  # in place: parameter names stay
    """,
    unless=(
        "Compiling takes seconds to minutes and again for new shapes. While the host limits, nothing is gained but "
        "room on the device. Hand-written attention and optimizers have codes of their own, B202 and B207."
    ),
)
def unfused_pointwise(case: Case) -> Stake | None:
    found = chains(case)
    return case.saving(sum(chain.saved_s for chain in found), _evidence(case, found))


def chains(case: Case) -> list[Chain]:
    program, fused = case.exam.program, case.fused
    if program is None or fused is None or case.flow is None:
        return []
    across = {one.kernel.fused_from for one in case.kernels if one.kernel.kind is KernelKind.TRANSFER}
    of_op = {op: unit for unit in case.units if unit not in across for op in unit}
    made = (as_one(case, case.flow, units) for one in fused.groups for units in [_units(one.group, program.ops, of_op)])
    return [chain for chain in made if chain is not None and chain.saved_s > 0]


def _units(group: Group, ops: Sequence[Op], of_op: dict[int, tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
    """What ran of a group besides its product. A unit that reaches beyond is fused some other way and left alone.

    A group with two products is an attention, and an optimizer is one too: other findings.
    """
    if sum(ops[op].cls is OpClass.CONTRACTION for op in group.ops) > 1 or _is_optimizer(group, ops):
        return ()
    streaming = {op for op in group.ops if ops[op].cls is not OpClass.CONTRACTION and kind(ops[op]) is not Kind.ALONE}
    units = dict.fromkeys(of_op[op] for op in group.ops if op in streaming and op in of_op)
    return tuple(unit for unit in units if streaming.issuperset(unit))


def _is_optimizer(group: Group, ops: Sequence[Op]) -> bool:
    return all(ops[op].phase is Phase.OPTIMIZER for op in group.ops)


def as_one(case: Case, flow: Flow, units: tuple[tuple[int, ...], ...]) -> Chain | None:
    """One kernel instead of these: each unit keeps the share of its time in which it moves what it still has to."""
    if len(units) < 2:
        return None
    together = bytes_moved(flow, [op for unit in units for op in unit])
    alone = {unit: sum(bytes_moved(flow, unit).values()) for unit in units}
    kept = {unit: sum(together[op] for op in unit) for unit in units}
    took_s = sum(case.units[unit] for unit in units)
    moving_s = sum(case.units[unit] * (kept[unit] / alone[unit] if alone[unit] else 1.0) for unit in units)
    least_s = _least_s(case, [op for unit in units for op in unit])
    if least_s is None:
        return None
    saved_s = took_s - max(moving_s, least_s)
    return Chain(units, took_s, saved_s, sum(alone.values()), sum(kept.values()))


def _least_s(case: Case, members: Sequence[int]) -> float | None:
    """What any kernel takes, and their arithmetic if no byte moves: cosines on a CPU gain nothing by fusion.

    None where a ceiling for that arithmetic is unknown, and with it whether there is anything to gain.
    """
    assert case.exam.program is not None, "there are no chains without a program"
    ops, ceilings = case.exam.program.ops, case.exam.ceilings
    least = floor(total(work for op in members if (work := ops[op].work) is not None), Traffic(), ceilings)
    return None if least is None else max(least.seconds, ceilings.shortest_kernel_class_s.get("elementwise", 0.0))


def bytes_moved(flow: Flow, members: Sequence[int]) -> dict[int, float]:
    """Bytes of each member, if one kernel does them all: what comes from outside, once, and what is needed outside."""
    inside, seen = set(members), dict[object, float]()
    return {
        op: sum(_read_bytes(flow, op, inside, seen)) + sum(_written_bytes(flow, op, inside))
        for op in dict.fromkeys(members)
    }


def _read_bytes(flow: Flow, op: int, inside: set[int], seen: dict[object, float]) -> Iterator[float]:
    """Of a stretch that a member before it has read in part, as a loss does that picks from it, the rest."""
    for read in flow.reads[op]:
        for nbytes, value in read.parts:
            if value is not None and value.maker in inside:
                continue
            access = read.access
            place = (
                object() if access.storage is None else (access.storage, access.start, access.stop, value and id(value))
            )
            yield max(0.0, nbytes - seen.get(place, 0.0))
            seen[place] = max(nbytes, seen.get(place, 0.0))


def _written_bytes(flow: Flow, op: int, inside: set[int]) -> Iterator[float]:
    for value in flow.makes[op]:
        if value.outlives_step or not value.readers or not inside.issuperset(value.readers):
            yield value.access.nbytes


def _evidence(case: Case, found: Sequence[Chain]) -> Iterator[str]:
    """One line for each pattern of ops, the most to gain first."""
    assert case.exam.program is not None or not found, "there are no chains without a program"
    ops = () if case.exam.program is None else case.exam.program.ops
    patterns: defaultdict[tuple[str, ...], list[Chain]] = defaultdict(list)
    for chain in found:
        names = [canonical(ops[op].name) for unit in chain.units for op in unit]
        patterns[ops[chain.units[0][0]].phase.value, *names].append(chain)
    most = sorted(patterns.items(), key=lambda item: -sum(chain.saved_s for chain in item[1]))
    yield from (_line(phase, names, some, ops) for (phase, *names), some in most[:SHOWN])
    if rest := [chain for _, some in most[SHOWN:] for chain in some]:
        yield f"and {len(rest)} more, {seconds(sum(chain.saved_s for chain in rest))} less if fused"


def _line(phase: str, names: Sequence[str], some: Sequence[Chain], ops: Sequence[Op]) -> str:
    called = ", ".join(names[:NAMED]) + (f" and {len(names) - NAMED} more" if len(names) > NAMED else "")
    often = f"{len(some)} times " if len(some) > 1 else ""
    where = ops[some[0].units[0][0]].source
    return (
        f"{phase}, {often}{called}: {seconds(sum(chain.seconds for chain in some))}, "
        f"{seconds(sum(chain.saved_s for chain in some))} less if fused ({moved(sum(chain.bytes for chain in some))} "
        f"→ {moved(sum(chain.bytes_fused for chain in some))})" + (f", {where}" if where else "")
    )
