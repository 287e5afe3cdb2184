"""What a step launches, by name: of a treatment that gains nothing it tells whether it did anything at all."""

from collections import Counter
from collections.abc import Callable


def launched(step: Callable[[], object], device: str) -> Counter[str]:
    """Kernels on a CUDA device, else ops; names as the profiler has them."""
    from torch.profiler import ProfilerActivity, profile

    activity = ProfilerActivity.CUDA if device.startswith("cuda") else ProfilerActivity.CPU
    with profile(activities=[activity], acc_events=True) as recorded:  # else torch warns that it forgets them
        step()
    return Counter(event.name for event in recorded.events() or () if event.device_type.name == activity.name)
