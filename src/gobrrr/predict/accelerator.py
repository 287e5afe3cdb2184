"""An Accelerator: what the time model asks of a device, from its datasheet or from what was measured on it."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gobrrr.dtypes import WIDER
from gobrrr.errors import UsageError
from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.datasheets import Datasheet


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Accelerator:
    """Compared by identity, so that estimates are remembered by it."""

    name: str
    vendor: str
    year: int
    multiprocessors: int
    clock_hz: float
    dram_bytes_per_s: float
    cache_bytes: float
    cache_bytes_per_s: float
    matmul_flops_per_s: Mapping[str, float]
    vector_flops_per_s: Mapping[str, float]
    memory_bytes: int
    power_w: float | None
    joules_per_flop: Mapping[str, float]
    """By mode, under load: times the rate it is the power that a long product draws."""
    asynchronous: bool
    """Matrix units run on their own while vector units work, as since Hopper in data centres."""
    serial: bool
    """Host and device are one."""
    calibrated: bool = False
    """Rates were measured: they are attained ones, not those of a sheet."""

    @property
    def cycles_per_s(self) -> float:
        """Of all multiprocessors together."""
        return self.multiprocessors * self.clock_hz

    def matrix_flops_per_s(self, mode: str) -> float | None:
        """Of the mode, or of the nearest wider one: a card without bf16 units computes in fp32, and one without matrix
        units for that on its vector units. None for what it cannot multiply at all.
        """
        modes = (mode, *WIDER.get(mode, ()))
        rates = [self.matmul_flops_per_s[wider] for wider in modes if wider in self.matmul_flops_per_s]
        return rates[0] if rates else self.vector_flops_per_s.get(modes[-1])

    def product_flops_per_s(self, mode: str) -> float:
        rate = self.matrix_flops_per_s(mode)
        if rate is None:
            raise UsageError(f"{self.name} multiplies nothing in {mode}")
        return rate

    def power_flops_per_s(self, mode: str) -> float:
        """What the power limit lets a long product reach."""
        return self.power_w / self.joules_per_flop[mode] if self.power_w else float("inf")


_CACHE_BYTES_PER_CYCLE = 24
"""A multiprocessor's share of the last-level cache's bandwidth: A100 3.1 TB/s read and written at 22 MiB, H100 5.5."""

_NO_CACHE = 1 << 20

_GEFORCE = ("rtx2", "rtx3", "rtx4", "rtx5")
_ABOVE_SHEET = 1.1
"""Of the clock: GeForce boards boost beyond the figure they are sold with, 1.9 GHz in place of 1.7 on an RTX 3090."""

_ATTAINED = {"Pascal HBM": 0.84}
"""Of the share of its sheet's bandwidth that other memory attains: long pointwise kernels run at 0.75 of a P100's
sheet, and at 0.89 of a V100's and an A100's."""

_PICOJOULES = {
    "Pascal": 3.0,  # no matrix units: only the fp32 factor below matters
    "Volta": 2.0,  # V100-PCIE reaches 95 TFLOP/s at 250 W, so less than 2.6
    "Turing": 2.2,  # T4: about half of its sheet at 70 W
    "Ampere HBM": 1.0,  # A100-PCIE is not limited at 250 W
    "Ampere": 1.8,  # 8 nm; A10: two thirds of its sheet at 150 W
    "Ada": 1.4,  # L4 and L40S hold 50 and 250 TFLOP/s
    "Hopper HBM": 0.95,  # H100-SXM: 0.72 of its sheet on long products of random data
    "Blackwell HBM": 0.6,  # B200: three quarters of its sheet
    "Blackwell": 1.4,
    "CDNA1 HBM": 2.0,
    "CDNA2 HBM": 1.8,
    "CDNA3 HBM": 1.1,  # MI300X: half of its sheet
    "CDNA4 HBM": 0.75,
}
"""Joules per dense 16-bit matrix FLOP, times 1e12: what long products draw where they are known to be throttled."""

_UNKNOWN_PICOJOULES = 1.5

_FP32_PICOJOULES = {"Pascal": 30.0, "Volta": 16.0, "Turing": 16.0, "Ampere": 9.0}
"""Without matrix units; P4, T4 and A10 throttle to about half. 16, 12 and 8 nm; a half of it again since."""

_LATER_FP32_PICOJOULES = 5.5

_ENERGY = {"bf16": 1.0, "fp16": 1.0, "tf32": 1.6, "fp8": 0.57, "int8": 0.57, "fp4": 0.3}
"""Of a 16-bit FLOP. tf32: an H200 holds 413 TFLOP/s; fp8: fitted to an H100's long products."""


def from_datasheet(sheet: Datasheet) -> Accelerator:
    above = _ABOVE_SHEET if sheet.id.startswith(_GEFORCE) else 1.0
    clock = above * (sheet.boost_clock_hz or sheet.base_clock_hz or 1e9)
    cache = max(sheet.l2_bytes or 0, sheet.last_level_cache_bytes or 0) or _NO_CACHE
    is_hbm = sheet.memory_type.startswith("HBM")
    attained = _ATTAINED.get(_kind(sheet), 1.0) * sheet.dram_bytes_per_s
    return Accelerator(
        name=sheet.id,
        vendor=sheet.vendor,
        year=sheet.year,
        multiprocessors=sheet.multiprocessors,
        clock_hz=clock,
        dram_bytes_per_s=attained,
        cache_bytes=cache,
        cache_bytes_per_s=max(_CACHE_BYTES_PER_CYCLE * sheet.multiprocessors * clock, 2 * attained),
        matmul_flops_per_s={mode: above * rate for mode, rate in sheet.matmul_flops_per_s.items()},
        vector_flops_per_s={dtype: above * rate for dtype, rate in sheet.vector_flops_per_s.items()},
        memory_bytes=sheet.memory_bytes,
        power_w=sheet.power_w,
        joules_per_flop=_joules(sheet),
        asynchronous=sheet.architecture in ("Hopper", "Blackwell") and is_hbm,
        serial=sheet.id.startswith("cpu-"),
    )


def _kind(sheet: Datasheet) -> str:
    """Its architecture, and whether it is one of a data centre."""
    return f"{sheet.architecture} HBM" if sheet.memory_type.startswith("HBM") else sheet.architecture


def _joules(sheet: Datasheet) -> dict[str, float]:
    known = _PICOJOULES.get(sheet.architecture, _UNKNOWN_PICOJOULES)
    matrix = _PICOJOULES.get(_kind(sheet), known) * 1e-12
    fp32 = _FP32_PICOJOULES.get(sheet.architecture, _LATER_FP32_PICOJOULES) * 1e-12
    return {mode: matrix * factor for mode, factor in _ENERGY.items()} | {"fp32": fp32, "fp64": 2 * fp32}


def with_power(accelerator: Accelerator, power_w: float) -> Accelerator:
    """The same card under another power limit."""
    return replace(accelerator, power_w=power_w)


def calibrated(accelerator: Accelerator, ceilings: Ceilings) -> Accelerator:
    """Rates as measured where they were; what a product attains needs no efficiency any more."""
    return replace(
        accelerator,
        dram_bytes_per_s=ceilings.dram_bytes_per_s or accelerator.dram_bytes_per_s,
        cache_bytes=ceilings.cache_bytes or accelerator.cache_bytes,
        cache_bytes_per_s=ceilings.cache_bytes_per_s or accelerator.cache_bytes_per_s,
        matmul_flops_per_s={**accelerator.matmul_flops_per_s, **ceilings.matmul_flops_per_s},
        vector_flops_per_s={**accelerator.vector_flops_per_s, **ceilings.vector_flops_per_s},
        power_w=None,
        calibrated=True,
    )
