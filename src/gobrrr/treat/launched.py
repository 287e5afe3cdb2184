"""What a step launches, by name: of a treatment that gains nothing it tells whether it did anything at all."""

from collections import Counter
from collections.abc import Callable


def launched(step: Callable[[], object], device: str) -> Counter[str]:
    """Kernels on a CUDA device, else ops; names as the profiler has them."""
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    cuda = device.startswith("cuda")
    with profile(activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]) as recorded:
        step()
    wanted = DeviceType.CUDA if cuda else DeviceType.CPU
    return Counter(event.name for event in recorded.events() or () if event.device_type == wanted)
