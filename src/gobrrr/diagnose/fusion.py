"""The fused floor: the least time of a program after ideal fusion, when every group of ops is one kernel.

A group reads each external value once and writes once what others need: what another group reads, a later phase, or
the world after the step. What lives and dies inside a group never reaches memory. Dropout masks are free, for a seed
gives them back; attention recomputes its scores, as flash does; nothing else is computed twice.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gobrrr.diagnose.floor import Floor, floor, op_floors
from gobrrr.diagnose.flow import Flow, Value, data_flow
from gobrrr.diagnose.grouping import Grouping, grouping, masks
from gobrrr.diagnose.residency import Access, Traffic, residency
from gobrrr.diagnose.sinking import sunk
from gobrrr.machine.ceilings import Ceilings
from gobrrr.work.op import Op
from gobrrr.work.program import Program
from gobrrr.work.work import Work, total


@dataclass(frozen=True, slots=True)
class Group:
    """Ops that one kernel would do, and what it would have to do at the least."""

    ops: tuple[int, ...]
    work: Work | None
    """The members' arithmetic, and external bytes only. None where a member's is unknown."""
    accesses: tuple[Access, ...]


@dataclass(frozen=True, slots=True)
class GroupFloor:
    group: Group
    seconds: float | None
    as_run_s: float | None
    """The sum of the members' own floors."""
    traffic: Traffic
    """Its external bytes, by the level that serves them."""


@dataclass(frozen=True, slots=True)
class FusedFloor:
    seconds: float | None
    """Of all groups whose floor is known; None if there are groups and none is known."""
    unknown: int
    """Groups that it leaves out. It is a floor without them, only a lower one."""
    groups: tuple[GroupFloor, ...]


def fused_floor(program: Program, ceilings: Ceilings) -> FusedFloor:
    """The sum over groups of the smaller of its own floor and what its members take apart.

    Fusing is never an obligation: where a group lengthens the way between two uses of a cached byte, its members stay
    as they are.
    """
    fused = groups(program.ops)
    members = op_floors(program.ops, ceilings)
    traffics = residency([group.accesses for group in fused], ceilings.cache_bytes)
    floors = tuple(
        _group_floor(group, traffic, floor(group.work, traffic, ceilings), [members[op] for op in group.ops])
        for group, traffic in zip(fused, traffics, strict=True)
    )
    known = [one.seconds for one in floors if one.seconds is not None]
    return FusedFloor(sum(known) if known or not floors else None, len(floors) - len(known), floors)


def _group_floor(group: Group, traffic: Traffic, own: Floor | None, members: Sequence[Floor | None]) -> GroupFloor:
    known = [member.seconds for member in members if member is not None]
    as_run = sum(known) if len(known) == len(members) else None
    candidates = [seconds for seconds in (own.seconds if own else None, as_run) if seconds is not None]
    return GroupFloor(group, min(candidates, default=None), as_run, traffic)


def groups(ops: Sequence[Op], *, flash: bool = True) -> list[Group]:
    """In the order of their first ops."""
    flow = data_flow(ops)
    free = masks(ops, flow)
    assigned = sunk(ops, flow, grouping(ops, flow, flash=flash), free)
    members: defaultdict[int, list[int]] = defaultdict(list)
    for number, group in enumerate(assigned.group):
        if group is not None:
            members[group].append(number)
    outside = _Outside(flow, assigned, free)
    again = _recomputed(ops, flow, assigned)
    return [_group(ops, number, some, outside, again.get(number)) for number, some in members.items()]


@dataclass(frozen=True, slots=True)
class _Again:
    """What a group does besides its members: it computes scores again, and reads the output they led to."""

    work: Work
    reads: tuple[tuple[Access, Value], ...]


def _recomputed(ops: Sequence[Op], flow: Flow, assigned: Grouping) -> dict[int, _Again]:
    """Flash's backward forms Q·Kᵀ once more, and takes its rows' sums of dO·O from the output.

    Where a checkpoint has run the forward again, the scores are in the same group already.
    """
    again: dict[int, _Again] = {}
    for attention in assigned.attentions:
        product = ops[attention.scores].work
        if attention.backward in (None, assigned.group[attention.scores]) or product is None:
            continue
        outputs = tuple((value.access._replace(writes=False), value) for value in flow.makes[attention.output])
        again[attention.backward] = _Again(Work(matrix=product.matrix, flops_dense=product.flops_dense), outputs)
    return again


def _group(ops: Sequence[Op], number: int, members: Sequence[int], outside: "_Outside", again: _Again | None) -> Group:
    accesses = (*outside.read(number, members, again.reads if again else ()), *outside.written(members))
    works = [work for member in members if (work := ops[member].work) is not None]
    if len(works) < len(members):
        return Group(tuple(members), None, accesses)
    work = replace(
        total(works) + (again.work if again else Work()),
        bytes_read=sum(access.nbytes for access in accesses if not access.writes),
        bytes_written=sum(access.nbytes for access in accesses if access.writes),
    )
    return Group(tuple(members), work, accesses)


@dataclass(frozen=True, slots=True)
class _Outside:
    """Tells what a group exchanges with the rest of the world from what stays in it."""

    flow: Flow
    assigned: Grouping
    free: set[Value]

    def read(self, number: int, members: Sequence[int], besides: Sequence[tuple[Access, Value]]) -> Iterator[Access]:
        """Each value once, however many members read it: identical stretches once, and never more than their hull."""
        stretches: defaultdict[tuple[int | None, Value | None], dict[object, tuple[Access, float]]]
        stretches = defaultdict(dict)
        parts = [
            (read.access, nbytes, value)
            for member in members
            for read in self.flow.reads[member]
            for nbytes, value in read.parts
        ]
        for access, nbytes, value in (*parts, *((access, access.nbytes, value) for access, value in besides)):
            if value is None or self._crosses(value, number):
                place = object() if access.storage is None else (access.start, access.stop)
                known = stretches[access.storage, value].get(place)
                if known is None or known[1] < nbytes:
                    stretches[access.storage, value][place] = access, nbytes
        return (_hull(storage, list(found.values())) for (storage, _), found in stretches.items())

    def written(self, members: Sequence[int]) -> Iterator[Access]:
        """What someone else needs. Scores that nobody reads are no result: flash has none to give."""
        made = (value for member in members for value in self.flow.makes[member])
        return (
            value.access
            for value in made
            if self._is_read_elsewhere(value) or (value.outlives_step and value.maker not in self.assigned.scores)
        )

    def _is_read_elsewhere(self, value: Value) -> bool:
        return any(
            self._crosses(value, reader_group)
            for reader in value.readers
            if (reader_group := self.assigned.group[reader]) is not None
        )

    def _crosses(self, value: Value, reader_group: int) -> bool:
        """Whether that group gets the value through memory."""
        if self.assigned.group[value.maker] == reader_group or value in self.free:
            return False
        return self.assigned.scores.get(value.maker) != reader_group


def _hull(storage: int | None, found: Sequence[tuple[Access, float]]) -> Access:
    start = min(access.start for access, _ in found)
    stop = max(access.stop for access, _ in found)
    summed = sum(nbytes for _, nbytes in found)
    return Access(storage, start, stop, summed if storage is None else min(summed, stop - start), writes=False)
