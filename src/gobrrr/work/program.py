"""A Program: the ungrouped sequence of a step's Ops before compilation, and the memory they held."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from gobrrr.work.op import Op, Phase


class StorageLife(Protocol):
    nbytes: int
    born: int
    died: int | None
    phase: Phase
    module: str


@dataclass(frozen=True, slots=True)
class Memory:
    peak_bytes: int
    """The most that was alive at once, of all storages that the step touched."""
    resident_bytes: int
    """What was there before the step: parameters, state, inputs."""
    saved_bytes: int
    """Made in the forward pass and still alive when the backward begins: activations kept for it."""
    saved_by_module: Mapping[str, int]

    @classmethod
    def of(cls, lives: Sequence[StorageLife], ops: int, backward_starts: Iterable[int]) -> "Memory":
        saved = max((saved_at(lives, start) for start in backward_starts), key=lambda s: sum(s.values()), default={})
        return cls(
            peak_bytes=peak(lives, ops),
            resident_bytes=sum(life.nbytes for life in lives if life.born == 0),
            saved_bytes=sum(saved.values()),
            saved_by_module=saved,
        )


@dataclass(frozen=True, slots=True)
class Program:
    ops: tuple[Op, ...]
    memory: Memory


def peak(lives: Iterable[StorageLife], ops: int) -> int:
    """Sum of sizes over time at its highest. Op i runs at the moment i + 1, and what it frees is still there then."""
    change = [0] * (ops + 2)
    for life in lives:
        change[life.born] += life.nbytes
        if life.died is not None:
            change[max(life.died + 1, life.born) + 1] -= life.nbytes
    highest = alive = 0
    for step in change:
        alive += step
        highest = max(highest, alive)
    return highest


def saved_at(lives: Iterable[StorageLife], moment: int) -> dict[str, int]:
    """Bytes by module of what the forward pass made and what lives at that op."""
    saved: dict[str, int] = defaultdict(int)
    for life in lives:
        if life.phase is Phase.FORWARD and 0 < life.born <= moment and (life.died is None or life.died >= moment):
            saved[life.module] += life.nbytes
    return dict(saved)
