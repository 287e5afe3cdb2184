"""What torch.compile has done since some moment: graph breaks, recompilations, and whether it gave up.

torch keeps counters and a short list of its latest compilations in `torch._dynamo.utils`, which is private; this file
is the only one that knows, and `tests/test_compiler_events.py` says what is assumed.
"""

import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from time import time_ns
from typing import Any


@dataclass(frozen=True, slots=True)
class Compilation:
    """What torch.compile did for a while."""

    breaks: Mapping[str, int]
    """Reasons why a graph ended early, or why there is none, with how often."""
    recompiles: tuple[str, ...]
    """Which guard failed, once for each time that something was compiled again."""
    gave_up: bool
    """Something was compiled again so often that it runs uncompiled now."""


_LIMIT = "recompile limit"
"""How torch says that it will not compile a function once more."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A moment to count from."""

    at_us: int
    breaks: Counter[str]


BEGINNING = Mark(0, Counter())
"""Of the process."""


def mark() -> Mark:
    return Mark(time_ns() // 1000, _breaks())


def since(start: Mark) -> Compilation | None:
    """None if nothing was compiled in the meantime."""
    dynamo = _dynamo()
    latest = () if dynamo is None else dynamo.get_compilation_metrics()
    found = [one for one in latest if (one.start_time_us or 0) >= start.at_us]
    if not found:
        return None
    failures = [one.fail_reason for one in found if one.fail_reason]
    skipped = (f"{_first_line(reason)}; the function runs uncompiled" for reason in failures if _LIMIT not in reason)
    breaks = Counter({_first_line(reason): number for reason, number in (_breaks() - start.breaks).items()})
    return Compilation(
        breaks=dict(breaks + Counter(skipped)),
        recompiles=tuple(_guard(one.recompile_reason) for one in found if one.recompile_reason),
        gave_up=any(_LIMIT in reason for reason in failures),
    )


def _dynamo() -> Any:
    """Only if something has imported it: that takes a second, and without it nothing was compiled."""
    return sys.modules.get("torch._dynamo.utils")


def _breaks() -> Counter[str]:
    dynamo = _dynamo()
    return Counter() if dynamo is None else Counter(dynamo.counters["graph_break"])


def _first_line(text: str) -> str:
    return text.strip().splitlines()[0]


def _guard(reason: str) -> str:
    """`0/1: n == 3  # if n == 3:  # model.py:12 in forward` as `n == 3 at model.py:12 in forward`."""
    guard, *comments = (" ".join(part.split()) for part in _first_line(reason).partition(": ")[2].split(" # "))
    return f"{guard} at {comments[-1]}" if comments else guard
