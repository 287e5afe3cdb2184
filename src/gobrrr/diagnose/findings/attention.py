"""What an attention took that is not one flash kernel, beside what one would take."""

from collections.abc import Iterable, Iterator, Sequence

from gobrrr.diagnose.findings.finding import Case, Stake
from gobrrr.units import seconds

SHOWN = 4
"""Lines listed: the layers of a model share theirs."""


def above_flash(case: Case, groups: Iterable[tuple[int, ...]]) -> Stake | None:
    """All time of these groups of ops above the floor of one flash kernel for each."""
    known = [ops for ops in set(groups) if case.group_of[min(ops)].seconds is not None]
    took, floor = sum(took_s(case, ops) for ops in known), sum(_floor_s(case, ops) for ops in known)
    return case.saving(took - floor, _evidence(case, known, took, floor))


def took_s(case: Case, ops: Iterable[int]) -> float:
    """Of the units that do nothing else."""
    inside = set(ops)
    return sum(took_s for unit, took_s in case.units.items() if inside.issuperset(unit))


def _floor_s(case: Case, ops: tuple[int, ...]) -> float:
    """Of one flash kernel for all of them: its work, but no less than the shortest one takes."""
    shortest_s = case.exam.ceilings.shortest_kernel_class_s.get("attention", 0.0)
    return max(case.group_of[min(ops)].seconds or 0.0, shortest_s)


def _evidence(case: Case, groups: Sequence[tuple[int, ...]], took: float, floor: float) -> Iterator[str]:
    yield f"{len(groups)} in a step take {seconds(took)}; flash kernels' floor is {seconds(floor)}"
    assert case.exam.program is not None or not groups, "there are no groups without a program"
    ops = () if case.exam.program is None else case.exam.program.ops
    lines = dict.fromkeys(ops[min(group)].source for group in sorted(groups))
    yield from [line for line in lines if line is not None][:SHOWN]
