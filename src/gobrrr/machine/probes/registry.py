"""The probes by name, filled by decorators."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeAlias

from gobrrr.errors import UsageError
from gobrrr.machine.bench import Bench, Unmeasurable, together
from gobrrr.stats import NOISY_SPREAD, Sample

Samples: TypeAlias = dict[str, Sample]
"""Measured values by dotted key of `Ceilings`."""


@dataclass(frozen=True, slots=True)
class Probe:
    name: str
    label: str
    """What the progress line calls it."""
    run: Callable[[Bench], Samples]
    strewn: bool = False
    """Run at the beginning, in the middle and at the end of a session, all values together: what it measures changes
    within seconds, as a shared host does, and one look would print a spread that the next session belies."""


PROBES: dict[str, Probe] = {}

ORDER = (
    "matmul",
    "vector",
    "cost",
    "dram",
    "cache",
    "shortest_kernel",
    "dispatch",
    "graph_replay",
    "host_copies",
)
"""Of the groups in a full run: what later ones build on comes first."""

TRIES = 3


def probe(
    name: str, label: str, *, strewn: bool = False
) -> Callable[[Callable[[Bench], Samples]], Callable[[Bench], Samples]]:
    def registered(function: Callable[[Bench], Samples]) -> Callable[[Bench], Samples]:
        PROBES[name] = Probe(name, label, function, strewn)
        return function

    return registered


def probe_each(
    group: str, members: Sequence[str], label: str
) -> Callable[[Callable[[Bench, str], Samples]], Callable[[Bench, str], Samples]]:
    """One probe `group.member` for each member; the label's braces hold its name."""

    def registered(function: Callable[[Bench, str], Samples]) -> Callable[[Bench, str], Samples]:
        for member in members:
            name = f"{group}.{member}"
            PROBES[name] = Probe(name, label.format(member), _bound(function, member))
        return function

    return registered


def settled(bench: Bench, name: str, now: Callable[[], float]) -> None:
    """Runs the probe, and while it is noisy and there is time, again: the calmest run counts."""
    results_of(bench, name)
    for _ in range(TRIES - 1):
        if _noise(bench.results[name]) <= NOISY_SPREAD or now() > bench.effort.retry_until_s:
            return
        try:
            again = PROBES[name].run(bench)
        except Unmeasurable:
            return  # this time, and what was measured before stays
        bench.results[name] = min(bench.results[name], again, key=_noise)


def scheduled(names: Sequence[str]) -> list[str]:
    """These probes in their order, the strewn ones three times."""
    strewn = [name for name in names if PROBES[name].strewn]
    once = [name for name in names if not PROBES[name].strewn]
    half = len(once) // 2
    return [*strewn, *once[:half], *strewn, *once[half:], *strewn]


def pooled(bench: Bench, name: str) -> None:
    """Runs the probe and adds its values to what earlier runs of this session found."""
    found, before = PROBES[name].run(bench), bench.results.get(name, {})
    bench.results[name] = {
        key: together((before[key], sample)) if key in before else sample for key, sample in found.items()
    }


def _noise(samples: Samples) -> float:
    return max((sample.spread for sample in samples.values()), default=0.0)


def results_of(bench: Bench, name: str) -> Samples:
    """What the probe found, run at most once a session: probes may build on one another."""
    if name not in bench.results:
        bench.results[name] = PROBES[name].run(bench)
    return bench.results[name]


def selected(only: Iterable[str] | None) -> list[str]:
    """Names of probes, in the order of a full run; a group stands for all of its members."""
    asked = set(ORDER) if only is None else set(only)
    for name in sorted(asked - set(ORDER) - PROBES.keys()):
        near = get_close_matches(name, dict.fromkeys([*ORDER, *PROBES]), n=3)
        hint = f"did you mean {' or '.join(near)}" if near else f"there are {', '.join(ORDER)}"
        raise UsageError(f"no probe {name!r}: {hint}")
    chosen = [name for name in PROBES if name in asked or _group(name) in asked]
    return sorted(chosen, key=lambda name: ORDER.index(_group(name)))


def _group(name: str) -> str:
    return name.partition(".")[0]


def _bound(function: Callable[[Bench, str], Samples], member: str) -> Callable[[Bench], Samples]:
    return lambda bench: function(bench, member)
