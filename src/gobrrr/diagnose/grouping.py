"""Grouping: which ops of a program one ideal kernel would do together.

A group is what *starts* it, a contraction as a rule, and everything whose latest start upstream it is: each op joins
the last to begin of the groups that it reads from. Numbering groups by where they start, values only ever flow from
lower to higher numbers, so no two groups wait for each other and the kernels could run in that order; but for those of
an attention, which are looked after. Ops with no
start upstream float: those that data flow connects are one group, and nothing that starts feeds them.

Groups keep to their phase, and an optimizer is one pass. Unfused attention is two contractions with a softmax between
and becomes one group, in the backward pass too, where a softmax's gradient stands between.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from gobrrr.diagnose.flow import Flow, Value
from gobrrr.diagnose.kinds import Kind, kind
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.registry import canonical

_SOFTMAX = frozenset("_softmax _safe_softmax _masked_softmax".split())
_SOFTMAX_BACKWARD = frozenset({"_softmax_backward_data", "_masked_softmax_backward"})
_FLOATING = -1


@dataclass(frozen=True, slots=True)
class Attention:
    """An unfused attention: its two products, and in the backward pass the group of their gradients."""

    scores: int
    output: int
    backward: int | None = None


@dataclass(frozen=True, slots=True)
class Grouping:
    group: Sequence[int | None]
    """Of each op; None for one that starts no kernel."""
    attentions: Sequence[Attention]
    scores: Mapping[int, int | None]
    """Ops between the products of an attention, each to the group that computes its result again, if one does."""


def grouping(ops: Sequence[Op], flow: Flow, *, flash: bool = True) -> Grouping:
    """Without `flash` the products of an attention stay apart, as a compiler leaves them."""
    grouper = _Grouper(ops, flow, flash=flash)
    for number, op in enumerate(ops):
        if op.launches:
            grouper.place(number)
    return grouper.result()


class _Grouper:
    """Places one op after the other. A group's number is its start's; merged groups answer to the last start."""

    def __init__(self, ops: Sequence[Op], flow: Flow, *, flash: bool) -> None:
        self._ops, self._flow, self._flash = ops, flow, flash
        self._parent: dict[int, int] = {}
        self._members: defaultdict[int, list[int]] = defaultdict(list)
        self._group: list[int | None] = [None] * len(ops)
        self._floating: set[int] = set()
        self._waits: set[int] = set()
        self._feeds: defaultdict[int, set[int]] = defaultdict(set)
        """Of each group, those that read from it."""
        self._late: set[int] = set()
        """Groups that began before the start that they answer to: attentions."""
        self._optimizer: int | None = None
        self._softmaxed: dict[int, int] = {}
        self._attention_of: dict[int, int] = {}
        self._attentions: dict[int, Attention] = {}
        self._cast_scores: dict[int, int] = {}
        self._backward: dict[int, int] = {}

    def place(self, number: int) -> None:
        op = self._ops[number]
        how = kind(op)
        if how in (Kind.ENDS, Kind.ALONE):
            self._waits.add(number)
        if op.cls is OpClass.OPTIMIZER and op.phase is Phase.OPTIMIZER and op.work is not None:
            self._optimizer = number if self._optimizer is None else self._optimizer
            self._put(number, self._optimizer)
        else:
            self._put(number, self._place_of(number, how))
        if self._flash:
            self._gather_attention(number)

    def _gather_attention(self, number: int) -> None:
        if self._ops[number].cls is OpClass.CONTRACTION:
            self._close_attention(number)
        self._follow_softmax(number)
        self._join_attention_backward(number)

    def _place_of(self, number: int, how: Kind) -> int:
        sources = set(self._sources(number))
        if how in (Kind.STARTS, Kind.ALONE) or (how is Kind.PICKS and sources):
            return number
        joined = max((self._level(s) for s in sources if s not in self._waits), default=_FLOATING)
        waits = [self._level(source) for source in sources if source in self._waits]
        if waits and max(waits) >= joined:
            return number
        if joined == _FLOATING:
            return self._float(number, sources - self._waits)
        others = {self._root(source) for source in sources} - {joined}
        return number if joined in self._late and any(self._follows(one, joined) for one in others) else joined

    def _follows(self, group: int, first: int) -> bool:
        """Whether it reads from the first, by way of others too."""
        seen, ahead = {first}, [first]
        while ahead:
            found = {self._find(one) for one in self._feeds[ahead.pop()]} - seen
            if group in found:
                return True
            seen |= found
            ahead += found
        return False

    def _sources(self, number: int) -> Iterator[int]:
        """Ops of the same phase whose results it reads."""
        phase = self._ops[number].phase
        makers = (value.maker for value in self._flow.values_read(number))
        return (maker for maker in makers if self._ops[maker].phase is phase)

    def _level(self, number: int) -> int:
        root = self._root(number)
        return _FLOATING if root in self._floating else root

    def _float(self, number: int, sources: set[int]) -> int:
        roots = [self._root(source) for source in sources]
        self._floating.update((number, *roots))
        for root in roots:
            self._merge(root, number)
        return number

    def _put(self, number: int, group: int) -> None:
        self._group[number] = group
        self._members[self._find(group)].append(number)
        for source in self._sources(number):
            self._feeds[self._root(source)].add(group)

    def _root(self, number: int) -> int:
        group = self._group[number]
        assert group is not None, "only ops that launch make values"
        return self._find(group)

    def _find(self, group: int) -> int:
        while (parent := self._parent.get(group, group)) != group:
            self._parent[group] = group = self._parent.get(parent, parent)
        return group

    def _merge(self, one: int, other: int) -> None:
        """Under the last start of the two; a group that floats has none."""
        low, high = sorted((self._find(one), self._find(other)), key=lambda root: (root not in self._floating, root))
        if low != high:
            if low not in self._floating:
                self._late.add(high)
            self._feeds[high] |= self._feeds.pop(low, set())
            self._parent[low] = high
            self._members[high] += self._members.pop(low, [])

    def _follow_softmax(self, number: int) -> None:
        """Notes what a softmax, or its gradient, has become, as long as it keeps its size and its group."""
        op, root = self._ops[number], self._root(number)
        if self._ops[root].cls is not OpClass.CONTRACTION or root == number or not op.outputs:
            return
        size = op.outputs[0].numel
        sources = (source for source in self._sources(number) if self._root(source) == root)
        if canonical(op.name) in _SOFTMAX | _SOFTMAX_BACKWARD or any(self._softmaxed.get(s) == size for s in sources):
            self._softmaxed[number] = size

    def _close_attention(self, product: int) -> None:
        """A product of what came out of a product by way of a softmax: one group with it."""
        for source in set(self._sources(product)):
            size = self._softmaxed.get(source)
            first = self._root(source)
            if size is None or self._ops[first].cls is not OpClass.CONTRACTION or first == product:
                continue
            others = {self._root(other) for other in self._sources(product)} - {first, product}
            if any(self._follows(other, first) for other in others):
                continue
            if self._ops[product].phase is Phase.FORWARD or not self._is_gradient(first):
                self._note_attention(first, product, size)
            self._merge(first, product)

    def _is_gradient(self, group: int) -> bool:
        return any(canonical(self._ops[member].name) in _SOFTMAX_BACKWARD for member in self._members[group])

    def _note_attention(self, first: int, product: int, size: int) -> None:
        self._attentions[product] = Attention(first, product)
        for member in self._members[first]:
            if any(ref.numel == size for ref in self._ops[member].outputs):
                self._attention_of[member] = product

    def _join_attention_backward(self, number: int) -> None:
        """What reads saved scores in a later phase belongs to the gradient of their attention.

        A cast of saved scores has nothing upstream in its own phase and floats until a product reads it.
        """
        root = self._root(number)
        for value in self._flow.values_read(number):
            attention = self._saved_scores(value.maker, number)
            if attention is None:
                continue
            if root in self._floating:
                self._cast_scores[number] = attention
            elif self._ops[root].cls is OpClass.CONTRACTION:
                self._merge(self._backward.setdefault(attention, root), root)
                if value.maker in self._cast_scores:
                    self._merge(self._root(value.maker), root)

    def _saved_scores(self, maker: int, reader: int) -> int | None:
        """The attention whose scores the reader gets from an earlier phase, or from a checkpoint run again."""
        made, read = self._ops[maker], self._ops[reader]
        later = made.phase is not read.phase or (made.recomputed and not read.recomputed)
        return self._attention_of.get(maker) if later else self._cast_scores.get(maker)

    def result(self) -> Grouping:
        backward = {attention: self._find(group) for attention, group in self._backward.items()}
        return Grouping(
            group=[None if group is None else self._find(group) for group in self._group],
            attentions=[Attention(a.scores, a.output, backward.get(a.output)) for a in self._attentions.values()],
            scores={op: backward.get(attention) for op, attention in self._attention_of.items()},
        )


_DRAWING = frozenset("bernoulli rand rand_like uniform".split())
_DROPPING = frozenset({"native_dropout", "_fused_dropout"})
"""They give the result first, then its mask."""


def masks(ops: Sequence[Op], flow: Flow) -> set[Value]:
    """Values that a seed gives back at any time: dropout masks, and what is computed from nothing else."""
    found: set[Value] = set()
    for number, op in enumerate(ops):
        name = canonical(op.name)
        if name in _DROPPING:
            found.update(flow.makes[number][1:])
        elif name in _DRAWING or (op.cls in (OpClass.ELEMENTWISE, OpClass.MOVEMENT) and flow.reads[number]):
            parts = (value for read in flow.reads[number] for _, value in read.parts)
            if all(value in found for value in parts):
                found.update(flow.makes[number])
    return found
