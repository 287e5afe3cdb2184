"""The signature of a step: which ops it launches, on which shapes. Steps of one signature do the same work."""

from typing import TypeAlias

from gobrrr import units
from gobrrr.work.op import Phase
from gobrrr.work.program import Program
from gobrrr.work.work import Work, total

Signature: TypeAlias = tuple[tuple[str, tuple[tuple[int, ...], ...]], ...]


def signature(program: Program) -> Signature:
    return tuple((op.name, tuple(ref.shape for ref in op.inputs)) for op in program.ops if op.launches)


def known_work(program: Program) -> Work:
    return total(op.work for op in program.ops if op.work is not None)


def change(first: Program, later: Program) -> float:
    """By how much the work of two steps differs: the larger of the relative changes of FLOPs and of bytes."""
    one, other = known_work(first), known_work(later)
    return max(_relative(one.flops, other.flops), _relative(one.bytes, other.bytes))


def changed(first: Program, later: Program) -> str | None:
    """What differs between two steps and what to do about it, in a sentence; nothing if they are of one signature."""
    differs = difference(first, later)
    if differs is None:
        return None
    if _updates(first) != _updates(later):
        return f"{differs}: its optimizer steps in some of them alone; let one step add up all that goes into an update"
    return (
        f"{differs}: give it inputs of one shape, let it add up all gradients that go into an update, and undo in "
        "Workload(reset=...) what it leaves behind, such as a key-value cache that it fills"
    )


def difference(first: Program, later: Program) -> str | None:
    if signature(first) == signature(later):
        return None
    one, other = known_work(first), known_work(later)
    return (
        f"the step does not do the same each time ({units.flops(one.flops)} and {units.moved(one.bytes)} at first, "
        f"{units.flops(other.flops)} and {units.moved(other.bytes)} later)"
    )


def _updates(program: Program) -> bool:
    return any(op.launches and op.phase is Phase.OPTIMIZER for op in program.ops)


def _relative(one: float, other: float) -> float:
    return abs(other - one) / max(one, other) if one != other else 0.0
