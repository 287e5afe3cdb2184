"""How large a buffer may be: far larger than the cache, far smaller than what is free."""

from gobrrr import units
from gobrrr.errors import Missing
from gobrrr.machine.cpu_state import free_host_bytes
from gobrrr.machine.identity import Machine

BEYOND_CACHE = 4
"""Buffers of so many caches: at most a quarter of a pass can still be found in the cache from the last one."""

SHARE_OF_FREE = 0.5
"""We are guests: the other half stays for whoever else allocates meanwhile."""

UNKNOWN_CACHE_BYTES = 64 << 20
"""Taken where the cache's size is unknown: no smaller than most, and the patterns stay far beyond it."""


def free_bytes(machine: Machine) -> int | None:
    """Free memory of the device; None where nobody tells."""
    if machine.kind == "cpu":
        return free_host_bytes()
    if machine.kind == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(machine.index)
        return free
    return None


def buffer_bytes(free: int | None, cache: int | None, largest: int, buffers: int) -> int:
    """Bytes of each of so many equal buffers beyond the cache, in whole pages."""
    least = BEYOND_CACHE * (UNKNOWN_CACHE_BYTES if cache is None else cache)
    wanted = max(least, largest)
    affordable = wanted if free is None else int(free * SHARE_OF_FREE) // buffers
    if affordable < least:
        raise Missing(
            f"measuring memory needs {units.capacity(least * buffers / SHARE_OF_FREE)} free "
            f"and there are {units.capacity(free)}: end other programs first"
        )
    return min(wanted, affordable) // 4096 * 4096


def matmul_size(free: int | None, largest: int, item_bytes: float) -> int:
    """`largest`, halved until two square operands and their product, at least 4 bytes wide, fit."""
    size = largest
    while free is not None and size * size * (2 * item_bytes + max(4, item_bytes)) > free * SHARE_OF_FREE:
        size //= 2
        if size < largest // 8:
            raise Missing(f"too little free memory for a matrix product: {units.capacity(free)}")
    return size
