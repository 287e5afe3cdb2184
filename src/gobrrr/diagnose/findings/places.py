"""Where the kernels of a finding come from, as lines of evidence."""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from gobrrr.diagnose.attribute import Attributed
from gobrrr.units import seconds
from gobrrr.work.op import Op
from gobrrr.work.registry import canonical
from gobrrr.work.tally import alike

SHOWN = 3
"""Lines that stand beside the sentence with the sums; a report shows four."""


def place(op: Op | None) -> str:
    """The line of the program, else its module with the layers of a kind as one."""
    return "line not known" if op is None else op.source or alike(op.module) or "line not known"


def by_place(kernels: Iterable[Attributed]) -> Iterator[str]:
    """The lines that take longest, with their ops, how many kernels and how long."""
    places: defaultdict[str, list[Attributed]] = defaultdict(list)
    for one in kernels:
        places[place(one.op)].append(one)
    longest = sorted(places.items(), key=lambda item: -sum(one.seconds for one in item[1]))
    return (_line(where, some) for where, some in longest[:SHOWN])


def _line(where: str, some: list[Attributed]) -> str:
    names = dict.fromkeys(canonical(one.op.name) if one.op is not None else one.kernel.name for one in some)
    called = ", ".join(list(names)[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    number = f"{len(some)} kernel{'s' if len(some) > 1 else ''}"
    return f"{where}: {called}, {number}, {seconds(sum(one.seconds for one in some))}"
