"""Memory of a treated step, on an accelerator that counts it."""

import gc
from collections.abc import Callable


def peak_bytes(step: Callable[[], object], device: str) -> int | None:
    """The most that was allocated during a step; None on a CPU, which nobody counts."""
    if not device.startswith("cuda"):
        return None
    import torch

    torch.cuda.reset_peak_memory_stats(device)
    step()
    torch.cuda.synchronize(device)
    return int(torch.cuda.max_memory_allocated(device))


def released(device: str) -> None:
    """What a treatment left behind goes back: its graphs hold memory that the next one needs."""
    gc.collect()
    if device.startswith("cuda"):
        import torch

        torch.cuda.empty_cache()
