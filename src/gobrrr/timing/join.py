"""Joining what was counted with what was timed: which op of the program a profiled span belongs to. No torch here.

Both saw the same step. The program has the ops that were dispatched, in order; the profiler has those, the compositions
around them and the calls inside them. So the program is found in the profile as a subsequence of a walk through its
trees, outermost match first: what lies inside a matched op is that op's own affair. An op and its in-place form are
one: autograd adds gradients in place where nobody counts, and out of place where somebody does. So are the two names
of a scattered write and of zeros, for the same reason.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from gobrrr.timing.timeline import OpNode, Span
from gobrrr.work.op import Op
from gobrrr.work.registry import canonical

LOOK_AHEAD = 64
"""Ops of the program that may be missing in the profile in a row; beyond, a same name is a coincidence."""

_SAME = {"_index_put_impl": "index_put", "new_zeros": "zeros"}
"""Names that autograd uses where nobody counts, or where somebody does, for one thing."""


@dataclass(slots=True)
class Matching:
    """The walk's state: how far the program's launching ops have been found."""

    ops: list[tuple[int, str, Op]]
    """Program index, name and op."""
    sizes: bool
    """Whether sizes must be the same, or only their number."""
    reached: int = 0
    nodes: dict[int, OpNode] = field(default_factory=dict)
    """Program index to its profiled op."""

    def walk(self, nodes: Sequence[OpNode], around: str = "") -> None:
        for node in nodes:
            self._visit(node, around)

    def _visit(self, node: OpNode, around: str) -> None:
        """Itself if it is next; else what is inside, and then itself again.

        An in-place op that autograd must be able to undo clones its operand first: the clone is inside, and before.
        What it then calls by its other name is still itself.
        """
        name = canonical(node.span.name)
        if _SAME.get(name) == around:
            self.walk(node.children, around)
            return
        if self._take(node, within=1):
            return
        before = self.reached
        self.walk(node.children, name)
        self._take(node, within=LOOK_AHEAD if self.reached == before else 1)

    def _take(self, node: OpNode, within: int) -> bool:
        name = _plain(node.span.name)
        for place, (index, wanted, op) in enumerate(self.ops[self.reached : self.reached + within], self.reached):
            if wanted == name and self._is_like(op, node, known=place > self.reached):
                self.nodes[index] = node
                self.reached = place + 1
                return True
        return False

    def _is_like(self, op: Op, node: OpNode, *, known: bool) -> bool:
        """Where it has to be known, a name alone is not enough: zeros that autograd makes of nothing are any zeros."""
        shape, other = next((ref.shape for ref in op.inputs if ref.shape), None), node.span.shape
        if shape is None or other is None:
            return not known
        return shape == other if self.sizes else len(shape) == len(other)


def matched_ops(program: Sequence[Op], forest: Sequence[OpNode]) -> dict[int, OpNode]:
    """Program index to profiled op, for all ops that launch something and were found.

    Views and allocations are left out: they differ between a counted and a plain run, and hold no device. Where rows
    follow from values, as those of experts do, sizes are not what they were when they were counted, and more is found
    without them. Where threads work at once of their own accord, as a loader that runs ahead, more is found unopened.
    """
    ops = [(index, _plain(op.name), op) for index, op in enumerate(program) if op.launches]
    opened = _opened(forest, frozenset(name for _, name, _ in ops))
    ways = [(opened, True), (opened, False), *([] if opened == list(forest) else [(list(forest), True)])]
    found: dict[int, OpNode] = {}
    for nodes, sizes in ways:
        if len(found) < len(ops):
            found = max(found, _matched(ops, nodes, sizes=sizes), key=len)
    return found


def _opened(forest: Sequence[OpNode], names: frozenset[str]) -> list[OpNode]:
    """What is no op of the program gives way to what it calls, where another thread works meanwhile: a step that is
    compiled whole calls its optimizer inside of what waits for its backward pass.
    """
    calls, waited = list(forest), True
    while waited:
        calls, waited = _opened_once(calls, names)
    return calls


def _opened_once(calls: list[OpNode], names: frozenset[str]) -> tuple[list[OpNode], bool]:
    """Sorted by start; of one thread none begins while another lasts, so that the next tells of other threads."""
    found: list[OpNode] = []
    waited = False
    for node, after in zip(calls, [*calls[1:], None], strict=False):
        if after is None or after.span.start_s >= node.span.end_s or _plain(node.span.name) in names:
            found.append(node)
        else:
            found += node.children
            waited = waited or bool(node.children)
    return sorted(found, key=lambda node: node.span.start_s), waited


def _matched(ops: list[tuple[int, str, Op]], forest: Sequence[OpNode], *, sizes: bool) -> dict[int, OpNode]:
    matching = Matching(ops, sizes)
    matching.walk(forest)
    return matching.nodes


def owners(matched: dict[int, OpNode]) -> dict[int, int]:
    """The profiler's number of an op, or of one inside it, to the program index; of two around it, the inner."""
    result: dict[int, int] = {}
    for index, node in sorted(matched.items(), key=lambda item: item[1].span.seconds):
        for inner in _within(node):
            if inner.span.op is not None:
                result.setdefault(inner.span.op, index)
    return result


def own_time(node: OpNode, matched_spans: frozenset[Span], call_s: float = 0.0) -> float:
    """Of a matched op and of those inside it that are not matched: each its own time less what one call costs.

    A scalar that is made a tensor, or a composition, is a handful of calls inside one op: each of them is dispatched,
    and one that is nothing but its call takes no time.
    """
    others = (child for child in node.children if child.span not in matched_spans)
    return max(0.0, node.self_s - call_s) + sum(own_time(child, matched_spans, call_s) for child in others)


def _plain(name: str) -> str:
    bare = canonical(name)
    return _SAME.get(bare, bare)


def _within(node: OpNode) -> Iterator[OpNode]:
    yield node
    for child in node.children:
        yield from _within(child)
