"""Memory of a treated step, on an accelerator that counts it."""

import gc
from collections import defaultdict
from collections.abc import Container
from typing import TypeAlias

from gobrrr.timing.state import preserved
from gobrrr.treat.subject import Subject

Pool: TypeAlias = tuple[int, int]

COMMON_POOL: Pool = (0, 0)


def peak_bytes(subject: Subject, ours_bytes: int = 0, others: Container[Pool] = ()) -> int | None:
    """The most that a step needs, without the copies that we keep (`ours_bytes` and one more, for the step is undone);
    None on a CPU, which nobody counts.

    A graph's memory lies in a pool of its own, where nothing is allocated when it is replayed and all is in use. The
    others' pools belong to graphs that are not in force.
    """
    if not subject.device.startswith("cuda"):
        return None
    import torch

    released(subject.device)
    with preserved(subject.origin) as kept:
        torch.cuda.reset_peak_memory_stats(subject.device)
        subject.run()
        torch.cuda.synchronize(subject.device)
        allocated = int(torch.cuda.max_memory_allocated(subject.device))
        captured = sum(size for pool, size in private_pools(subject.device).items() if pool not in others)
    return allocated + captured - kept.device_bytes - ours_bytes


def has_room_for_two(device: str) -> bool:
    """Another process may make the same workload while this one computes it in fp64, in twice the memory with a copy
    beside: three times what it ever held is free.
    """
    if not device.startswith("cuda"):
        return False
    import torch

    free, _ = torch.cuda.mem_get_info(device)
    return 3 * int(torch.cuda.max_memory_reserved(device)) <= free


def private_pools(device: str) -> dict[Pool, int]:
    """Of captured graphs: the bytes of each that no tensor holds."""
    if not device.startswith("cuda"):
        return {}
    import torch

    index = torch.device(device).index or 0
    found: defaultdict[Pool, int] = defaultdict(int)
    for segment in torch.cuda.memory_snapshot():  # type: ignore[no-untyped-call]
        pool = tuple(segment["segment_pool_id"])
        if segment["device"] == index and pool != COMMON_POOL:
            found[pool] += segment["total_size"] - segment["allocated_size"]
    return dict(found)


def released(device: str) -> None:
    """What a treatment left behind goes back: its graphs hold memory that the next one needs."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
