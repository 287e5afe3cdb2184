"""What torch's allocator had to do for a device."""


def allocation_retries(device: str) -> int | None:
    """How often since the process began it found no memory, gave back what it had kept and asked again."""
    if not device.startswith("cuda"):
        return None
    import torch

    retries: int | None = torch.cuda.memory_stats(device).get("num_alloc_retries")
    return retries
