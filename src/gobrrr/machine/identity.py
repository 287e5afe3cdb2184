"""Which machine this is: what a measurement belongs to, and what it must be thrown away with."""

import hashlib
import platform
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gobrrr.errors import Missing, UsageError
from gobrrr.extras import need
from gobrrr.machine.cpu_state import last_level_cache_bytes, meminfo, physical_cores, usable_cpus
from gobrrr.machine.gpu_state import driver_version

if TYPE_CHECKING:
    import torch

METHOD = 1
"""Raised whenever a probe measures something else than before, so that no older value is taken for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """One device with the host that drives it. None is unknown."""

    name: str
    """As the driver spells it; a CPU's as the kernel does."""
    kind: str
    """`cpu`, `cuda` (ROCm too), or what else torch calls a device."""
    threads: int
    torch: str
    host: str
    index: int = 0
    architecture: str | None = None
    """What the compiled code is chosen by: AVX512, sm_90, gfx942."""
    driver: str | None = None
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    """Of a CPU the cores that we may use."""
    cache_bytes: int | None = None
    uuid: str | None = None

    @property
    def fingerprint(self) -> str:
        """What a measured value depends on, hashed.

        Two equal GPUs of one host share their ceilings, so the index is left out; a CPU's depend on the
        number of threads, a GPU's do not. The architecture counts because a setting can lower it.
        """
        parts = (self.kind, self.name, self.architecture, self.driver, self.torch, self.host, self.multiprocessors)
        threads = self.threads if self.kind == "cpu" else None
        return hashlib.sha256(repr((METHOD, *parts, threads)).encode()).hexdigest()[:16]

    @property
    def device(self) -> str:
        """As torch spells it."""
        return "cpu" if self.kind == "cpu" else f"{self.kind}:{self.index}"


def identify(device: str | None = None) -> Machine:
    """The named device, or the accelerator that torch would use, or else the CPU."""
    need("torch", "torch")
    chosen = _chosen(device)
    if chosen.type == "cpu":
        return _cpu()
    return _cuda(chosen) if chosen.type == "cuda" else _other(chosen)


def _chosen(device: str | None) -> "torch.device":
    import torch

    accelerator: torch.device | None = torch.accelerator.current_accelerator(check_available=True)
    if device is None:
        return torch.device("cpu") if accelerator is None else _indexed(accelerator)
    try:
        named = torch.device(device)
    except RuntimeError:
        raise UsageError(f"torch knows no device {device!r}: say cpu, cuda or cuda:1") from None
    if named.type == "cpu":
        return named
    if accelerator is None or accelerator.type != named.type:
        raise Missing(f"no {named.type} device: torch {torch.__version__} sees {_seen(accelerator)}")
    count = torch.accelerator.device_count()
    if (named.index or 0) >= count:
        raise Missing(f"no {named}: there {'is' if count == 1 else 'are'} {count}, counted from 0")
    return _indexed(named)


def _seen(accelerator: "torch.device | None") -> str:
    import torch

    if accelerator is not None:
        return f"{accelerator.type} and the CPU"
    built = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]
    return "only the CPU" if built else "only the CPU (it is a CPU build)"


def _indexed(device: "torch.device") -> "torch.device":
    import torch

    if ":" in str(device):
        return device
    return torch.device(device.type, torch.accelerator.current_device_index())


def _cpu() -> Machine:
    import torch

    threads = torch.get_num_threads()
    return Machine(
        name=cpu_model(),
        kind="cpu",
        threads=threads,
        torch=torch.__version__,
        host=cpu_model(),
        architecture=torch.backends.cpu.get_cpu_capability(),
        memory_bytes=meminfo().get("MemTotal"),
        multiprocessors=physical_cores(usable_cpus()),
        cache_bytes=last_level_cache_bytes(usable_cpus(), threads),
    )


def _cuda(device: "torch.device") -> Machine:
    import torch

    properties = torch.cuda.get_device_properties(device)
    architecture = getattr(properties, "gcnArchName", None) if torch.version.hip else None
    return Machine(
        name=properties.name,
        kind="cuda",
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        host=cpu_model(),
        index=device.index,
        architecture=architecture or f"sm_{properties.major}{properties.minor}",
        driver=torch.version.hip or driver_version(),
        memory_bytes=properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        cache_bytes=properties.L2_cache_size or None,
        uuid=None if torch.version.hip else f"GPU-{properties.uuid}",
    )


def _other(device: "torch.device") -> Machine:
    """An accelerator that nobody has written probes for: its name is what torch's own module tells."""
    import torch

    module = torch.get_device_module(device)
    name = module.get_device_name(device) if hasattr(module, "get_device_name") else device.type
    return Machine(
        name=name,
        kind=device.type,
        threads=torch.get_num_threads(),
        torch=torch.__version__,
        host=cpu_model(),
        index=device.index,
    )


def cpu_model() -> str:
    """The kernel's name for the CPU; elsewhere than on Linux the platform's."""
    try:
        match = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1].strip() if match else platform.processor() or platform.machine()
