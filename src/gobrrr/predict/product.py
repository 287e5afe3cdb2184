"""Matrix products: tiles in waves over the multiprocessors, with split K where there are few.

A library has kernels for a few tile shapes and takes about the best, so the least time over them is the prediction.
The constants are fitted to public tables of F.linear on A100, H100 and RTX PRO 6000 and hold for A40, which the fit
did not see, as well (benchmarks/predict.py).
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.estimate import LAUNCH_S, NOTHING, Estimate, overlapped


@dataclass(frozen=True, slots=True)
class Product:
    """(m, k) times (k, n), so many times."""

    m: int
    n: int
    k: int
    batch: int = 1
    mode: str = "bf16"
    alignment: int = 8
    """Elements: of what power of two, up to 8, all rows begin at multiples."""
    quiet: bool = False
    """Operands of zeros or of uninitialised memory, which toggle few wires and draw little power."""

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k


TILES = (
    *((16, 64), (16, 128), (32, 64), (32, 128), (64, 64), (64, 128), (64, 256)),
    *((128, 64), (128, 128), (128, 256), (256, 64), (256, 128)),
)
TILES_SIMT = ((32, 128), (128, 32), (64, 64), (64, 128), (128, 64), (128, 128))
SPLITS = (1, 2, 3, 4, 6, 8, 12, 16)

_RATE = 1.25
"""Of the sheet for an endless tile whose loads cost nothing. Tiles of 128x256 reach 0.79 of the sheet with it."""
_RATE_FED = 1.6
"""Where matrix units fetch their operands themselves, or want few: all of the sheet, until the power limit."""
_FED_FLOPS_PER_CYCLE = 600.0
"""Of a multiprocessor whose matrix units are so slow that operands never keep them waiting, as on GeForce cards."""
_RATE_SIMT = 0.95
"""fp32 on vector units; their tiles want less of each load: 0.84 of the sheet with 128x128."""
_TILE_LOADS = 50.0
_TILE_LOADS_SIMT = 8.5
"""The side of a tile whose loads take as long as its arithmetic, for endless other sides."""
_QUIET = 1.12
"""Times as fast with operands that draw little power, up to the sheet: 0.82 of an H100's in place of 0.72."""
_UNALIGNED_FLOPS_PER_CYCLE = 550.0
"""Of a multiprocessor that loads element by element: GPT-2's 50257-wide head on an H200; twice that for pairs."""
_TILE_CYCLES = 180.0
_TILE_CYCLES_PER_ELEMENT = 0.13
"""Prologue and epilogue of a tile that the next one does not hide."""
_FILL_CYCLES = 4400.0
"""From the launch to full pipelines and from the last product to the end."""
_WAVES_BLURRED = 0.75
"""How far partly filled waves cost their share only: tiles end at different times."""
_SPLIT_CYCLES = 3600.0
_SPLIT_K = 256
"""The least that split K leaves to each part."""
_STREAMED = 0.81
"""Of the sheet's bandwidth."""
_SHARPNESS = 3.4
_STEP_K = 64
_STEP_K_SIMT = 8


def product(shape: Product, memory_s: float, accelerator: Accelerator) -> Estimate:
    """Of a product whose operands take `memory_s` to stream at full efficiency of the memory."""
    if not shape.flops:
        return NOTHING
    compute_s, seconds = _best(shape, memory_s, accelerator)
    return Estimate(seconds, compute_s, memory_s, _latency_s(accelerator))


def streamed(accelerator: Accelerator) -> float:
    """The share of the memory's sheet that operands of a product arrive with."""
    return 1.0 if accelerator.calibrated else _STREAMED


def _latency_s(accelerator: Accelerator) -> float:
    return LAUNCH_S + _FILL_CYCLES / accelerator.clock_hz


def _best(shape: Product, memory_s: float, accelerator: Accelerator) -> tuple[float, float]:
    """What its arithmetic takes, and all of it."""
    latency_s = _latency_s(accelerator)
    best = (0.0, float("inf"))
    for bm, bn, splits, ctas, parts_k, rate in _candidates(shape, accelerator):
        waves = _waves(ctas / accelerator.multiprocessors)
        tile_s = (_TILE_CYCLES + _TILE_CYCLES_PER_ELEMENT * bm * bn) / accelerator.clock_hz
        compute_s = waves * (2 * bm * bn * parts_k / rate + tile_s)
        seconds = latency_s + overlapped(compute_s, memory_s, _SHARPNESS)
        if splits > 1:
            partial_bytes = 8 * shape.batch * shape.m * shape.n * splits
            seconds += _SPLIT_CYCLES / accelerator.clock_hz + partial_bytes / accelerator.cache_bytes_per_s
        if seconds < best[1]:
            best = (compute_s, seconds)
    return best


def _waves(full: float) -> float:
    return _WAVES_BLURRED * max(1.0, full) + (1 - _WAVES_BLURRED) * ceil(full)


@lru_cache(maxsize=1 << 12)
def _candidates(shape: Product, accelerator: Accelerator) -> tuple[tuple[int, int, int, int, int, float], ...]:
    """Tile, splits, tiles in all, the K of each, and the rate of one multiprocessor."""
    found = []
    is_simt = on_vector_units(shape.mode, accelerator)
    step_k = _STEP_K_SIMT if is_simt else _STEP_K
    for bm, bn in TILES_SIMT if is_simt else TILES:
        if shape.mode in ("fp8", "int8") and min(bm, bn) < 64:
            continue
        tiles = ceil(shape.m / bm) * ceil(shape.n / bn) * shape.batch
        rate = tile_rate(shape, bm, bn, accelerator) / accelerator.multiprocessors
        for splits in SPLITS:
            if splits > 1 and not _may_split(shape, splits, tiles, accelerator):
                break
            parts_k = ceil(shape.k / splits / step_k) * step_k
            found.append((bm, bn, splits, tiles * splits, parts_k, rate))
    return tuple(found)


def _may_split(shape: Product, splits: int, tiles: int, accelerator: Accelerator) -> bool:
    """Libraries have no split kernels for scaled 8-bit products."""
    return shape.mode not in ("fp8", "int8") and shape.k >= splits * _SPLIT_K and tiles <= accelerator.multiprocessors


def tile_rate(shape: Product, bm: int, bn: int, accelerator: Accelerator) -> float:
    """FLOP/s of the whole accelerator with tiles of this size."""
    sheet = accelerator.product_flops_per_s(shape.mode)
    is_simt = on_vector_units(shape.mode, accelerator)
    loads = _TILE_LOADS_SIMT if is_simt else _TILE_LOADS
    is_fed = accelerator.asynchronous or sheet <= _FED_FLOPS_PER_CYCLE * accelerator.cycles_per_s
    peak = _RATE_SIMT if is_simt else _RATE_FED if is_fed else _RATE
    if accelerator.calibrated:  # what was measured is what large tiles attain
        peak = 1 + loads * (1 / 128 + 1 / 256)
    rate = min(sheet * peak / (1 + loads * (1 / bm + 1 / bn)), accelerator.power_flops_per_s(shape.mode))
    limits = [rate * (_QUIET if shape.quiet else 1), sheet]
    if shape.alignment < 8 and not is_simt:
        limits.append(_UNALIGNED_FLOPS_PER_CYCLE * shape.alignment * accelerator.cycles_per_s)
    return min(limits)


def on_vector_units(mode: str, accelerator: Accelerator) -> bool:
    """Products that no matrix unit does: fp32 on NVIDIA's cards."""
    rate = accelerator.matrix_flops_per_s(mode) or 0.0
    return rate <= 1.05 * accelerator.vector_flops_per_s.get("fp32", 0.0)
