"""The host's state, read from where Linux keeps it; elsewhere it is unknown."""

import os
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

from gobrrr.machine.doubts import CpuState

_PROC_STAT = Path("/proc/stat")
_CGROUP = Path("/sys/fs/cgroup")
_CPUS = Path("/sys/devices/system/cpu")


def cpu_state(threads: int) -> CpuState:
    cpus = usable_cpus()
    busy_s, stolen_s = _spent_s(_text(_PROC_STAT), cpus)
    return CpuState(
        cores=physical_cores(cpus),
        threads=threads,
        quota_cores=_quota_cores(),
        at_s=time.monotonic(),
        busy_s=busy_s,
        stolen_s=stolen_s,
        own_s=time.process_time(),
    )


def usable_cpus() -> frozenset[int]:
    """The logical CPUs that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def physical_cores(cpus: Iterable[int]) -> int:
    """Hyper-threads of one core share its arithmetic units, so they count once, as torch counts them."""
    siblings = {_text(_CPUS / f"cpu{cpu}/topology/thread_siblings_list") or str(cpu) for cpu in cpus}
    return len(siblings)


def _spent_s(stat: str | None, cpus: frozenset[int]) -> tuple[float | None, float | None]:
    """Busy and stolen seconds of those CPUs, from lines `cpu0 user nice system idle iowait irq softirq steal`."""
    if stat is None:
        return None, None
    ticks_per_s = os.sysconf("SC_CLK_TCK")
    busy = stolen = 0
    for line in stat.splitlines():
        name, *ticks = line.split() or [""]
        if name.startswith("cpu") and name != "cpu" and int(name[3:]) in cpus:
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, ticks[:8])
            busy += user + nice + system + irq + softirq
            stolen += steal
    return busy / ticks_per_s, stolen / ticks_per_s


def _quota_cores() -> float | None:
    """Version 2 of control groups says `quota period` in one file, version 1 in two."""
    both = (_text(_CGROUP / "cpu.max") or "").split()
    if len(both) != 2:
        both = [
            _text(_CGROUP / "cpu/cpu.cfs_quota_us") or "max",
            _text(_CGROUP / "cpu/cpu.cfs_period_us") or "1",
        ]
    quota, period = both
    return None if quota in ("max", "-1") else int(quota) / int(period)


def free_host_bytes() -> int | None:
    """What may be allocated without swapping: the kernel's estimate, less where the control group says so."""
    available = meminfo().get("MemAvailable")
    limit, used = _text(_CGROUP / "memory.max"), _text(_CGROUP / "memory.current")
    if limit is None or used is None or not limit.isdigit():
        return available
    left = int(limit) - int(used)
    return left if available is None else min(available, left)


def meminfo() -> Mapping[str, int]:
    lines = (_text(Path("/proc/meminfo")) or "").splitlines()
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in lines)}


def last_level_cache_bytes(cpus: Iterable[int], threads: int) -> int | None:
    """All last-level caches that the threads can fill: a chiplet each on some CPUs, one shared on others."""
    caches: dict[tuple[int, str], int] = {}
    for cpu in cpus:
        for index in (_CPUS / f"cpu{cpu}/cache").glob("index*"):
            level, kind, size, shared = (_text(index / name) for name in ("level", "type", "size", "shared_cpu_list"))
            if level and size and shared and kind != "Instruction":
                caches[int(level), shared] = _kernel_bytes(size)
    if not caches:
        return None
    last = max(level for level, _ in caches)
    sizes = sorted((size for (level, _), size in caches.items() if level == last), reverse=True)
    return sum(sizes[:threads])


def _kernel_bytes(text: str) -> int:
    """`49152K`, `32M`."""
    scale = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1])
    return int(text) if scale is None else int(text[:-1]) * scale


def _text(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None
