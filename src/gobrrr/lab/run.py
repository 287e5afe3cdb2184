"""A run of the lab: every experiment that was asked for, one after the other, as one document."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter

from gobrrr import schema
from gobrrr.errors import GobrrrError, UsageError
from gobrrr.lab import batch, bert, fusion, intensity, overhead, peaks, sizes
from gobrrr.lab.claim import untestable
from gobrrr.lab.experiment import EXPERIMENTS, Experiment, Found
from gobrrr.lab.result import Lab, Result
from gobrrr.lab.site import NotHere, Site
from gobrrr.machine import Machine, identify
from gobrrr.machine.cpu_state import cpu_state
from gobrrr.machine.doubts import CpuState, cpu_doubts, host_doubts
from gobrrr.machine.restore import free_caches

Progress = Callable[[int, int, str], None]

ORDER = tuple(module.__name__.rpartition(".")[2] for module in (peaks, intensity, fusion, overhead, batch, bert))
"""From what the machine can do to what a model makes of it."""


def run(names: Iterable[str], progress: Progress, size: sizes.Sizes | None = None) -> Lab:
    """These experiments, or all; on the accelerator if there is one."""
    chosen = [_named(name) for name in names or ORDER]
    machine = identify()
    size = size or (sizes.CUDA if machine.kind == "cuda" else sizes.CPU)
    results = []
    before = _host(machine)
    for number, one in enumerate(chosen, 1):
        results.append(_result(one, Site(machine.device, size, _telling(progress, number, len(chosen), one.name))))
        free_caches(machine)
    doubts = (cpu_doubts if machine.kind == "cpu" else host_doubts)(before, _host(machine))
    return Lab(
        device=machine.name,
        torch=machine.torch,
        threads=machine.threads,
        made_at=datetime.now(UTC).isoformat(timespec="seconds"),
        experiments=tuple(results),
        doubts=tuple(doubt.what for doubt in doubts),
    )


def _host(machine: Machine) -> CpuState:
    """The compilers that we start are no strangers."""
    state = cpu_state(machine.threads if machine.kind == "cpu" else 1)
    return replace(state, own_s=sum(os.times()[:4]))


def _result(one: Experiment, site: Site) -> Result:
    """What cannot run here says why, and the others still run."""
    import torch

    began_s = perf_counter()
    try:
        found = one.run(site)
    except (NotHere, GobrrrError, torch.OutOfMemoryError) as reason:
        found = Found((), tuple(untestable(claim, str(reason).splitlines()[0]) for claim in one.claims), ())
    return Result(
        name=one.name,
        question=one.question,
        claims=found.claims,
        points=tuple(schema.to_data(point) for point in found.points),
        drawings=found.drawings,
        seconds=perf_counter() - began_s,
    )


def _telling(progress: Progress, number: int, total: int, name: str) -> Callable[[str], None]:
    return lambda what: progress(number, total, f"{name}: {what}")


def _named(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UsageError(f"there is no experiment {name!r}; there are: {', '.join(ORDER)}")
    return EXPERIMENTS[name]
