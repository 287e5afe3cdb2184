"""Measuring: which probes to run, run them, and keep what they found."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import TypeAlias

from gobrrr.errors import GobrrrError, Missing
from gobrrr.machine import cache
from gobrrr.machine.bench import CPU_EFFORT, CUDA_EFFORT, Bench, Effort, Unmeasurable
from gobrrr.machine.ceilings import Ceilings, merge
from gobrrr.machine.cpu_state import cpu_state
from gobrrr.machine.doubts import Doubt, GpuState, cpu_doubts, gpu_doubts, host_doubts
from gobrrr.machine.gpu_state import gpu_state
from gobrrr.machine.identity import Machine, identify
from gobrrr.machine.probes import PROBES, pooled, scheduled, selected, settled
from gobrrr.machine.restore import free_caches, undisturbed

Progress: TypeAlias = Callable[[int, int, str], None]
"""Told before each probe: its number from 1, how many there are, and its name."""

PATIENCE_S = 8.0
"""After which no noisy probe is run again where some were asked for by name: whoever did waits for something else."""


def measured(
    device: str | None = None,
    *,
    only: Iterable[str] | None = None,
    fresh: bool = False,
    progress: Progress | None = None,
) -> Ceilings:
    """The machine's ceilings: from the cache, and measured as far as they are missing there.

    `only` names probes or groups of them; `fresh` measures those again. What was measured is kept for the
    next time.
    """
    machine = identify(device)
    names = selected(only)
    known = cache.load(machine, _say)
    wanted = [name for name in names if fresh or known is None or name not in known.probed]
    if known is not None and not wanted:
        return known
    if fresh and only is None:
        known = None
    effort = _effort(machine) if only is None else replace(_effort(machine), retry_until_s=PATIENCE_S)
    found = measure(machine, wanted, known=known, progress=progress, effort=effort)
    ceilings = found if known is None else merge(known, found)
    cache.store(ceilings, _say)
    return ceilings


def measure(
    machine: Machine,
    names: Iterable[str],
    *,
    known: Ceilings | None = None,
    progress: Progress | None = None,
    effort: Effort | None = None,
) -> Ceilings:
    """Runs these probes now. A probe may use what is known, and gives unknown with a reason where it cannot."""
    bench = Bench(machine, effort or _effort(machine), known)
    names = scheduled(list(names))
    refused: dict[str, str] = {}
    began_s = perf_counter()
    before = cpu_state(_threads_at_work(machine))
    gpu_states = [_gpu_state(machine)]
    with undisturbed(machine):
        for number, name in enumerate(names, 1):
            if progress is not None:
                progress(number, len(names), PROBES[name].label)
            refused.update(_attempted(bench, name, lambda: perf_counter() - began_s))
            if name.startswith("matmul."):  # nothing draws more power or shows more of what holds a clock back
                gpu_states.append(_gpu_state(machine))
            free_caches(machine)
    gpu_states.append(_gpu_state(machine))
    host = (cpu_doubts if machine.kind == "cpu" else host_doubts)(before, cpu_state(_threads_at_work(machine)))
    gpu = gpu_doubts([state for state in gpu_states if state is not None])
    return _document(bench, refused, (*host, *gpu), datetime.now(UTC))


def _effort(machine: Machine) -> Effort:
    return CUDA_EFFORT if machine.kind == "cuda" else CPU_EFFORT


def _threads_at_work(machine: Machine) -> int:
    """An accelerator is driven by one thread."""
    return machine.threads if machine.kind == "cpu" else 1


def _attempted(bench: Bench, name: str, elapsed_s: Callable[[], float]) -> dict[str, str]:
    """Runs one probe; the reason under its name if it gave nothing."""
    import torch

    try:
        if PROBES[name].strewn:
            pooled(bench, name)
        else:
            settled(bench, name, elapsed_s)
    except Unmeasurable as reason:
        return {name: str(reason)}
    except torch.OutOfMemoryError:
        raise Missing(f"{bench.machine.name} ran out of memory while measuring {name}: free some first") from None
    except GobrrrError:
        raise
    except Exception as error:  # noqa: BLE001 (a probe runs other people's compilers; the others still count)
        return {name: f"broke: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"}
    return {}


def _document(bench: Bench, refused: dict[str, str], doubts: tuple[Doubt, ...], now: datetime) -> Ceilings:
    machine, at = bench.machine, now.isoformat(timespec="seconds")
    empty = Ceilings(
        device=machine.name,
        kind=machine.kind,
        threads=machine.threads,
        measured_at=at,
        cache_bytes=machine.cache_bytes,
        probed=dict.fromkeys([*bench.results, *refused], at),
        unmeasured=refused,
        doubts=doubts,
        fingerprint=machine.fingerprint,
        architecture=machine.architecture,
        driver=machine.driver,
        torch=machine.torch,
        host=machine.host,
        memory_bytes=machine.memory_bytes,
        multiprocessors=machine.multiprocessors,
    )
    return empty.filled({key: sample for samples in bench.results.values() for key, sample in samples.items()})


def _gpu_state(machine: Machine) -> GpuState | None:
    return None if machine.uuid is None else gpu_state(machine.uuid)


def _say(sentence: str) -> None:
    sys.stderr.write(f"gobrrr: {sentence}\n")
