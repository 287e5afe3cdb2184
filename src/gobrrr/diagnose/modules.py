"""Where in the model the device's time goes: all kernels of a step as a tree of modules."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from gobrrr.diagnose.attribute import Attributed, as_run_floor_s, floor_together, regime_seconds
from gobrrr.work.tally import alike


@dataclass(frozen=True, slots=True)
class ModuleNode:
    path: str
    """Dotted; empty for the whole step, whose own kernels ran in no module."""
    kind: str
    """The path without numbers: the layers of a model are of one kind, as `Net.block.*`."""
    modules: int
    """How many this stands for: one, unless modules of a kind were put together."""
    calls: int
    seconds: float
    own_s: float
    """Of kernels that ran in none of its children."""
    share: float
    """Of busy time."""
    regimes_s: Mapping[str, float]
    floor_s: float | None
    """None if a kernel that computes has none; a percent of the time may be in such kernels."""
    children: tuple["ModuleNode", ...]
    """The longest first."""


@dataclass(frozen=True, slots=True)
class ModuleLine:
    """A node as it is listed: how far in, and by what is new in its path."""

    depth: int
    label: str
    node: ModuleNode


def module_tree(kernels: Iterable[Attributed]) -> ModuleNode:
    located = [(one.module, one) for one in kernels]
    return _node("", located, sum(one.seconds for _, one in located))


def largest(tree: ModuleNode, number: int) -> list[ModuleLine]:
    """So many of the longest modules, those of a kind as one, in the order of the tree.

    What is inside is never longer: so each stands below the one that it is part of.
    """
    lines = [line for child in together([tree]).children for line in _lines(child, 0, "")]
    longest = {id(line) for line in sorted(lines, key=lambda line: -line.node.seconds)[:number]}
    return [line for line in lines if id(line) in longest]


def together(nodes: Sequence[ModuleNode]) -> ModuleNode:
    """Modules of a kind as one, and so on inside them."""
    inside: defaultdict[str, list[ModuleNode]] = defaultdict(list)
    for child in (child for node in nodes for child in node.children):
        inside[child.kind].append(child)
    return ModuleNode(
        path=nodes[0].kind,
        kind=nodes[0].kind,
        modules=sum(node.modules for node in nodes),
        calls=sum(node.calls for node in nodes),
        seconds=sum(node.seconds for node in nodes),
        own_s=sum(node.own_s for node in nodes),
        share=sum(node.share for node in nodes),
        regimes_s={name: sum(node.regimes_s[name] for node in nodes) for name in nodes[0].regimes_s},
        floor_s=floor_together([(node.seconds, node.floor_s) for node in nodes]),
        children=_longest_first(together(group) for group in inside.values()),
    )


def _lines(node: ModuleNode, depth: int, above: str) -> Iterator[ModuleLine]:
    """A module that does nothing but call another is passed over: the one inside has its name in the path."""
    if len(node.children) == 1 and not node.own_s:
        yield from _lines(node.children[0], depth, above)
        return
    yield ModuleLine(depth, node.path.removeprefix(above), node)
    for child in node.children:
        yield from _lines(child, depth + 1, f"{node.path}.")


def _node(path: str, located: Sequence[tuple[str, Attributed]], busy_s: float) -> ModuleNode:
    own = [one for where, one in located if where == path]
    below: defaultdict[str, list[tuple[str, Attributed]]] = defaultdict(list)
    for where, one in located:
        if where != path:
            below[_child(path, where)].append((where, one))
    children = [_node(child, inside, busy_s) for child, inside in below.items()]
    seconds = sum(one.seconds for _, one in located)
    return ModuleNode(
        path=path,
        kind=alike(path),
        modules=1,
        calls=len(located),
        seconds=seconds,
        own_s=sum(one.seconds for one in own),
        share=seconds / busy_s if busy_s else 0.0,
        regimes_s=regime_seconds(one for _, one in located),
        floor_s=as_run_floor_s(one for _, one in located),
        children=_longest_first(children),
    )


def _longest_first(nodes: Iterable[ModuleNode]) -> tuple[ModuleNode, ...]:
    return tuple(sorted(nodes, key=lambda node: -node.seconds))


def _child(path: str, below: str) -> str:
    """The next part of the way down."""
    start = len(path) + 1 if path else 0
    return below[: start + len(below[start:].partition(".")[0])]
