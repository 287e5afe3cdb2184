"""Sinking: an op moves down to the group that reads its result, where fewer bytes cross for it.

`a = f(x)` in one group and `g(a, y)` in a later one exchange a through memory. If x has to cross anyway, f is better
done where g is: x is read once more, and a is neither written nor read. Without this, splitting a pointwise op of two
operands would change what is exchanged.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from gobrrr.diagnose.flow import Flow, Value
from gobrrr.diagnose.grouping import Grouping
from gobrrr.diagnose.kinds import Kind, kind
from gobrrr.work.op import Op, Phase


def sunk(ops: Sequence[Op], flow: Flow, assigned: Grouping, free: set[Value]) -> Grouping:
    """From the last op to the first, so that a chain sinks link by link; then back, where nothing was gained.

    A chain sinks if its first link gains, and the others have to go before it at equal bytes. Those that waited in vain
    return to the contraction whose epilogue they were. All readers of what moves are in one group, so every group
    upstream of the op was upstream of that one before: still no two groups wait for each other.
    """
    sinker = _Sinker(ops, flow, assigned, free)
    for number in reversed(range(len(ops))):
        sinker.sink(number)
    for number in range(len(ops)):
        sinker.rise(number)
    return replace(assigned, group=sinker.group)


class _Sinker:
    """Keeps, while ops move, how often a group reads a value and how many readers a value has elsewhere."""

    def __init__(self, ops: Sequence[Op], flow: Flow, assigned: Grouping, free: set[Value]) -> None:
        self.group = list(assigned.group)
        self._home = assigned.group
        self._ops, self._flow, self._scores, self._free = ops, flow, assigned.scores, free
        self._uses = Counter(
            (self.group[number], key) for number in range(len(ops)) for key, _, _ in self._reads(number)
        )
        self._elsewhere = Counter(
            value
            for number in range(len(ops))
            for value in flow.values_read(number)
            if self.group[value.maker] != self.group[number]
        )

    def sink(self, number: int) -> None:
        target = self._only_reader(number)
        if target is None or target == self.group[number] or kind(self._ops[number]) is not Kind.STREAMS:
            return
        if any(value.maker in self._scores for value in self._flow.values_read(number)):
            return
        if self._bytes_to_sink(number, target) <= self._bytes_made(number):
            self._move(number, target)

    def rise(self, number: int) -> None:
        """Back home if what it reads is where it was, and sinking gained nothing."""
        home, target = self._home[number], self.group[number]
        if target is None or home is None or home == target:
            return
        if any(self.group[value.maker] != self._home[value.maker] for value in self._flow.values_read(number)):
            return
        self._move(number, home)
        if self._bytes_to_sink(number, target) < self._bytes_made(number):
            self._move(number, target)

    def _bytes_made(self, number: int) -> float:
        """Written here and read there, as long as they cross."""
        return 2 * sum(value.access.nbytes for value in self._flow.makes[number])

    def _only_reader(self, number: int) -> int | None:
        """The one group of the same phase that reads all it makes, element by element."""
        made = self._flow.makes[number]
        readers = {reader for value in made for reader in value.readers}
        groups = {self.group[reader] for reader in readers}
        if len(groups) != 1 or any(value.outlives_step or value in self._free for value in made):
            return None
        phase = self._ops[number].phase
        if phase is Phase.OPTIMIZER or any(self._ops[reader].phase is not phase for reader in readers):
            return None
        streams = all(kind(self._ops[reader]) in (Kind.STREAMS, Kind.ENDS) for reader in readers)
        return groups.pop() if streams and number not in self._scores else None

    def _bytes_to_sink(self, number: int, target: int) -> float:
        """What crosses into the target that did not, less what then need not cross to where the op was."""
        here, added = self.group[number], 0.0
        for key, nbytes, value in self._reads(number):
            if not self._uses[target, key]:
                added += nbytes
            if value is None or self.group[value.maker] != here:
                added -= nbytes if self._uses[here, key] == 1 else 0
            elif not self._elsewhere[value] and not value.outlives_step:
                added += value.access.nbytes
        return added

    def _move(self, number: int, target: int) -> None:
        """Counts again what the op's move changes: its own reads, and who reads its results from elsewhere."""
        here, self.group[number] = self.group[number], target
        for key, _, value in self._reads(number):
            self._uses[here, key] -= 1
            self._uses[target, key] += 1
            if value is not None:
                maker = self.group[value.maker]
                self._elsewhere[value] += (maker == here) - (maker == target)
        for value in self._flow.makes[number]:
            self._elsewhere[value] = sum(self.group[reader] != target for reader in value.readers)

    def _reads(self, number: int) -> Iterator[tuple[object, float, Value | None]]:
        """Each part that costs bytes, with a key by which a group's second read of it is known."""
        for read in self._flow.reads[number]:
            for nbytes, value in read.parts:
                if value is None:
                    yield read.access[:3], nbytes, None
                elif value not in self._free:
                    yield value, nbytes, value
