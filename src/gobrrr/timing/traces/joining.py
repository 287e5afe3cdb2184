"""What a recorded step launched, joined with the ops that asked for it and with their work."""

import re
from collections import Counter as Multiset
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import dropwhile, islice

from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.timing.timeline import Span, SpanKind
from gobrrr.timing.traces.columns import KINDS, NONE, Trace
from gobrrr.timing.traces.links import Step, is_graph
from gobrrr.timing.traces.ownership import Host, chain, host_of, module_of, phase_of
from gobrrr.timing.traces.replay import Played
from gobrrr.timing.traces.spans import lane_number, spans_of
from gobrrr.work.kernel_names import class_of, is_communication, is_tf32, type_of
from gobrrr.work.op import CountedBy, Op, OpClass, Phase
from gobrrr.work.recorded import Recorded, recorded
from gobrrr.work.recorded_ops import CountedOp, Surroundings, counted_op, needs_neighbours, unknown_op
from gobrrr.work.work import Work

LISTS = "multi_tensor_apply"
"""In the names of torch's kernels on lists of tensors."""

LIST_BLOCK = 1 << 16
"""Numbers that one block of theirs takes."""

ACCUMULATE = "torch::autograd::AccumulateGrad"

LOOK_AHEAD = 4
"""Ops after a convolution among which the one that takes its result is looked for."""


@dataclass(frozen=True, slots=True)
class Joined:
    """What ran in a step, and the ops that asked for it."""

    kernels: tuple[Kernel, ...]
    ops: tuple[Op, ...]
    linked: frozenset[int]
    """Places of kernels whose op is known."""
    shaped: frozenset[int]
    """Places of kernels whose op's shapes were recorded."""


@dataclass(slots=True)
class Joining:
    """Kernels to launches to ops; calls that look alike are counted once."""

    trace: Trace
    chosen: Played
    host: Sequence[Span]
    """What the host did in the step's stretch."""
    gaps: Mapping[int, str] = field(default_factory=dict)
    """By row, what the device waited for before it."""
    counted: dict[tuple[object, ...], CountedOp | None] = field(default_factory=dict)
    listed: dict[int | None, tuple[int, str]] = field(default_factory=dict)
    """By the row of an op on lists of tensors, how many numbers each list has, and of which type."""

    def joined(self) -> Joined:
        trace, step = self.trace, self.chosen.step
        host = host_of(trace, self.host)
        assumed = _usual_type(trace, step)
        seen = {span.row: span for span in self.host}
        calls = [
            None if call is None else seen.get(call) or spans_of(trace, [call], step.start_us)[0]
            for _, call in step.device
        ]
        chains = [[] if call is None or is_graph(call.name) else chain(host, call) for call in calls]
        self.listed = self._lists(chains)
        owners = self._owners(chains, host, assumed)
        ops: list[Op] = []
        places: dict[object, int] = {}
        kernels: list[Kernel] = []
        tf32 = self._tf32_owners(step, chains, owners)
        for (row, _), call, around, owner in zip(step.device, calls, chains, owners, strict=True):
            key: object = around[owner].row if owner is not None else ("alone", row)
            if key not in places:
                places[key] = len(ops)
                ops.append(self._op(row, call, around, owner, host, assumed, tf32=key in tf32))
            kernels.append(self._kernel(row, ops[places[key]], places[key]))
        linked = frozenset(place for place, around in enumerate(chains) if around)
        shaped = frozenset(
            place for place in linked if any(trace.columns.details[op.row or 0] != NONE for op in chains[place])
        )
        return Joined(tuple(kernels), tuple(ops), linked, shaped)

    def _owners(self, chains: Sequence[list[Span]], host: Host, assumed: str | None) -> list[int | None]:
        """Of each kernel the innermost op around it whose work is known, by its place among them.

        One further out is taken only if nothing inside it has been: its work is that of all it calls.
        """
        found = [self._innermost(around, host, assumed) for around in chains]
        inner = {around[0].row for owner, around in zip(found, chains, strict=True) if owner == 0}
        taken = {
            op.row for around in chains for op in islice(dropwhile(lambda op: op.row not in inner, around), 1, None)
        }
        return [
            None if owner and around[owner].row in taken else owner for owner, around in zip(found, chains, strict=True)
        ]

    def _innermost(self, around: Sequence[Span], host: Host, assumed: str | None) -> int | None:
        places = range(len(around))
        return next((place for place in places if self._counted(around, place, host, assumed, tf32=False)), None)

    def _tf32_owners(
        self, step: Step, chains: Sequence[Sequence[Span]], owners: Sequence[int | None]
    ) -> set[int | None]:
        return {
            around[owner].row
            for (row, _), around, owner in zip(step.device, chains, owners, strict=True)
            if owner is not None and is_tf32(self.trace.name_of(row))
        }

    def _counted(
        self, around: Sequence[Span], place: int, host: Host, assumed: str | None, *, tf32: bool
    ) -> CountedOp | None:
        op, caller = around[place], around[place + 1] if place + 1 < len(around) else None
        after = host.ops[op.lane].following(around[-1], LOOK_AHEAD) if needs_neighbours(op.name) else ()
        near = tuple([self._details(one) for one in after])
        key = (op.name, self._details(op), self._details(caller), near, tf32, self.listed.get(op.row))
        if key not in self.counted:
            self.counted[key] = self._count(op, caller, after, assumed, tf32=tf32)
        return self.counted[key]

    def _details(self, op: Span | None) -> int:
        return NONE if op is None else self.trace.columns.details[op.row or 0]

    def _count(
        self, op: Span, caller: Span | None, after: Sequence[Span], assumed: str | None, *, tf32: bool
    ) -> CountedOp | None:
        mine = self._recorded(op, assumed)
        if mine is None:
            return None
        if op.row in self.listed:
            mine = mine.with_lists_of(*self.listed[op.row])
        theirs = None if caller is None else self._recorded(caller, assumed)
        following = [found for one in after if (found := self._recorded(one, assumed)) is not None]
        operands = tuple(one.tensors[0] for one in following if one.tensors)
        return counted_op(mine, Surroundings(around=theirs, following=operands, tf32=tf32))

    def _lists(self, chains: Sequence[list[Span]]) -> dict[int | None, tuple[int, str]]:
        """Of lists no sizes are recorded, but a kernel on them has a block for every so many numbers of a tensor.

        The last block of each tensor is not full: an optimizer's lists have no more numbers than there were gradients.
        """
        blocks: Multiset[int | None] = Multiset()
        types: dict[int | None, str] = {}
        lists = self.trace.names_with(LISTS)
        for (row, _), around in zip(self.chosen.step.device, chains, strict=True):
            if around and self.trace.columns.name[row] in lists and (dtype := type_of(self.trace.name_of(row))):
                blocks[around[0].row] += self._blocks(row)
                types[around[0].row] = dtype
        most = self._gradients() if blocks else None
        return {
            row: (min(LIST_BLOCK * number, most or LIST_BLOCK * number), types[row])
            for row, number in blocks.items()
            if number
        }

    def _blocks(self, row: int) -> int:
        details = self.trace.columns.details[row]
        grid = b"" if details == NONE else self.trace.details[details].grid
        found = re.match(rb"\s*\[\s*(\d{1,9})\b", grid)
        return 0 if found is None else int(found[1])

    def _gradients(self) -> int:
        """Numbers in all gradients that the step has made; 0 where their sizes were not recorded."""
        rows = [row for row in self.chosen.rows if self.trace.name_of(row) == ACCUMULATE]
        found = [
            recorded(ACCUMULATE, one.dims, one.strides, one.types, one.values, assumed_type="fp32")
            for row in rows
            if (place := self.trace.columns.details[row]) != NONE and (one := self.trace.details[place])
        ]
        return sum(one.tensors[0].numel for one in found if one is not None and one.tensors)

    def _recorded(self, op: Span, assumed: str | None) -> Recorded | None:
        details = self._details(op)
        if details == NONE:
            return None
        found = self.trace.details[details]
        return recorded(op.name, found.dims, found.strides, found.types, found.values, assumed_type=assumed)

    def _op(
        self,
        row: int,
        call: Span | None,
        around: Sequence[Span],
        owner: int | None,
        host: Host,
        assumed: str | None,
        *,
        tf32: bool,
    ) -> Op:
        kernel = self.trace.name_of(row)
        counted = None if owner is None else self._counted(around, owner, host, assumed, tf32=tf32)
        counted = counted or _by_bytes(self.trace, row) or unknown_op(kernel)
        phase = phase_of(host, around, call)
        named = around[owner or 0] if around else None
        counted = replace(counted, cls=_class(counted.cls, phase, kernel))
        name = kernel if named is None else named.name
        return counted.ran(name, phase, module_of(self.trace, host, around, call), "cuda")

    def _kernel(self, row: int, op: Op, place: int) -> Kernel:
        trace, played = self.trace, self.chosen.play
        columns = trace.columns
        recorded_s = (columns.start_us[row] - self.chosen.step.start_us) * 1e-6
        return Kernel(
            name=trace.name_of(row),
            start_s=played.start_s.get(row, recorded_s),
            seconds=columns.us[row] * 1e-6,
            kind=_kind(trace, row, op),
            stream=lane_number(trace.lanes[columns.lane[row]][1], columns.lane[row]),
            launched_s=played.launched_s.get(row),
            fused_from=None,
            op=place,
            gap=self.gaps.get(row),
        )


def _class(cls: OpClass, phase: Phase, kernel: str) -> OpClass:
    """As in a live run: an optimizer's pointwise passes are the optimizer, its products stay products."""
    if is_communication(kernel):
        return OpClass.COMMUNICATION
    return OpClass.OPTIMIZER if phase is Phase.OPTIMIZER and cls is not OpClass.CONTRACTION else cls


def _by_bytes(trace: Trace, row: int) -> CountedOp | None:
    """A copy or a fill by the device itself says how much it moves."""
    details = trace.columns.details[row]
    moved = None if details == NONE else trace.details[details].moved
    if moved is None:
        return None
    name = trace.name_of(row)
    work = Work(bytes_read=0 if "Memset" in name else moved, bytes_written=moved)
    return CountedOp(class_of(name), CountedBy.FORMULA, work, (), ())


def _kind(trace: Trace, row: int, op: Op) -> KernelKind:
    name = trace.name_of(row)
    if is_communication(name) or op.cls is OpClass.COMMUNICATION:
        return KernelKind.COMMUNICATION
    across = KINDS[trace.columns.kind[row]] is SpanKind.TRANSFER and not any(word in name for word in ("DtoD", "PtoP"))
    return KernelKind.TRANSFER if across else KernelKind.COMPUTE


def _usual_type(trace: Trace, step: Step) -> str | None:
    """Of the elements that most of the device's time goes into, by the kernels' names."""
    seconds: Multiset[str] = Multiset()
    for row, _ in step.device:
        kind = type_of(trace.name_of(row))
        if kind is not None:
            seconds[kind] += round(trace.columns.us[row] * 1e3)
    return seconds.most_common(1)[0][0] if seconds else None
