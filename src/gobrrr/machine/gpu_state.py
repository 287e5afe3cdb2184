"""The GPU's state as NVIDIA's driver tells it: through NVML, else through nvidia-smi, else unknown."""

import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from gobrrr.machine.doubts import GpuState

_QUERY = "clocks_event_reasons.active,power.limit,power.default_limit,temperature.gpu,clocks.sm,clocks.max.sm"


@dataclass(frozen=True, slots=True)
class GpuUse:
    """How much of a GPU is in use at the moment, by everybody."""

    util_percent: float | None
    """Of the last fraction of a second, in which any kernel ran at all."""
    clock_hz: float | None
    power_w: float | None
    memory_bytes: float | None


def gpu_use(uuid: str | None) -> GpuUse | None:
    """Through NVML alone: nvidia-smi takes longer than what one would watch with it."""
    nvml: Any = None if uuid is None else _nvml()
    handle = None if nvml is None else _told(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return None
    rates = _told(nvml, nvml.nvmlDeviceGetUtilizationRates, handle)
    memory = _told(nvml, nvml.nvmlDeviceGetMemoryInfo, handle)
    return GpuUse(
        util_percent=None if rates is None else float(rates.gpu),
        clock_hz=_scaled(_told(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), 1e6),
        power_w=_scaled(_told(nvml, nvml.nvmlDeviceGetPowerUsage, handle), 1e-3),
        memory_bytes=None if memory is None else float(memory.used),
    )


def gpu_state(uuid: str) -> GpuState | None:
    """Of the GPU with this UUID, whatever number it has in this process."""
    nvml = _nvml()
    return _from_smi(uuid) if nvml is None else _from_nvml(nvml, uuid)


def driver_version() -> str | None:
    nvml = _nvml()
    if nvml is None:
        lines = (_smi("--query-gpu=driver_version") or "").split()
        return lines[0] if lines else None
    version: str | None = _told(nvml, nvml.nvmlSystemGetDriverVersion)
    return version


def _nvml() -> Any:
    """The module, initialised, or None; initialising again only counts up."""
    try:
        import pynvml
    except ModuleNotFoundError:
        return None
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return None
    return pynvml


def _from_nvml(nvml: Any, uuid: str) -> GpuState | None:
    handle = _told(nvml, nvml.nvmlDeviceGetHandleByUUID, uuid)
    if handle is None:
        return None
    running = _told(nvml, nvml.nvmlDeviceGetComputeRunningProcesses, handle)
    return GpuState(
        throttle_bits=_told(nvml, nvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
        power_limit_w=_scaled(_told(nvml, nvml.nvmlDeviceGetPowerManagementLimit, handle), 1e-3),
        power_default_w=_scaled(_told(nvml, nvml.nvmlDeviceGetPowerManagementDefaultLimit, handle), 1e-3),
        temperature_c=_told(nvml, nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
        slowdown_c=_told(
            nvml, nvml.nvmlDeviceGetTemperatureThreshold, handle, nvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN
        ),
        clock_hz=_scaled(_told(nvml, nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM), 1e6),
        highest_clock_hz=_scaled(_told(nvml, nvml.nvmlDeviceGetMaxClockInfo, handle, nvml.NVML_CLOCK_SM), 1e6),
        processes=None if running is None else len(running),
    )


def _told(nvml: Any, question: Callable[..., Any], *arguments: Any) -> Any:
    """The answer, or None where this GPU or this driver has none."""
    try:
        return question(*arguments)
    except nvml.NVMLError:
        return None


def _from_smi(uuid: str) -> GpuState | None:
    line = _smi(f"--query-gpu={_QUERY}", f"--id={uuid}")
    running = _smi("--query-compute-apps=pid", f"--id={uuid}")
    return None if line is None else parsed_smi(line, running)


def parsed_smi(line: str, running: str | None) -> GpuState:
    """A line of nvidia-smi's CSV; what it cannot tell it prints as [N/A] or the like."""
    bits, limit, default, temperature, clock, highest = (cell.strip() for cell in line.split(","))
    return GpuState(
        throttle_bits=int(bits, 16) if bits.startswith("0x") else None,
        power_limit_w=_number(limit),
        power_default_w=_number(default),
        temperature_c=_number(temperature),
        clock_hz=_scaled(_number(clock), 1e6),
        highest_clock_hz=_scaled(_number(highest), 1e6),
        processes=None if running is None else len(running.split()),
    )


def _smi(*arguments: str) -> str | None:
    """What it prints, or None where it is not there or refuses."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    try:
        done = subprocess.run(  # noqa: S603 (a fixed program with arguments of our own)
            [program, *arguments, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _number(cell: str) -> float | None:
    try:
        return float(cell)
    except ValueError:
        return None


def _scaled(value: float | None, scale: float) -> float | None:
    return None if value is None else value * scale
