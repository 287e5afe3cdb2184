"""P: the rate of large matrix products, one for each way to multiply."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from gobrrr.dtypes import ITEM_BYTES, MATRIX_MODES
from gobrrr.machine import tiles
from gobrrr.machine.bench import Bench, Unmeasurable, rates
from gobrrr.machine.memory import free_bytes, matmul_size
from gobrrr.machine.probes.registry import Samples, probe_each
from gobrrr.machine.restore import fp32_precision

if TYPE_CHECKING:
    import torch

_CPU_MODES = ("fp64", "fp32", "bf16", "fp16", "int8")
_SLOW_MODES = ("fp64", "fp32")
"""Without matrix units of their own on most devices: half the size takes them as long."""
_FIRST_ARCHITECTURE = {"tf32": 80, "fp8": 89}
"""Of NVIDIA's, that multiplies so."""

GIVE_UP_S = 2.0
"""A smallest product slower than this has no place in any program; its rate stays unknown."""

WORTH_GROWING = 0.9
"""A larger size is taken unless it clearly loses: rates rise with size until the cache is left behind."""


@probe_each("matmul", MATRIX_MODES, "{} matmul")
def matmul(bench: Bench, member: str) -> Samples:
    """2n³ FLOPs over the time of one n×n product of random numbers, n as large as is quick enough.

    Random numbers, because zeros flip no bits, draw no power, and show a clock that real work never sees.
    """
    _refuse_impossible(bench, member)
    largest = bench.effort.largest_matmul // (2 if member in _SLOW_MODES and bench.kind != "cpu" else 1)
    item_bytes = ITEM_BYTES["fp32" if member == "tf32" else member]
    largest = matmul_size(free_bytes(bench.machine), largest, item_bytes)
    backend = "cuda" if bench.kind == "cuda" else "mkldnn"
    with fp32_precision(backend, "tf32" if member == "tf32" else "ieee"):
        size = best_size(partial(_seconds_once, bench, member), largest, bench.effort.largest_matmul_s)
        seconds = bench.seconds(_product(bench, member, size))
    return {f"matmul_flops_per_s.{member}": rates(2 * size**3, seconds)}


def best_size(seconds_at: Callable[[int], float], largest: int, enough_s: float) -> int:
    """Doubled from an eighth of the largest until a product takes long enough; the fastest rate wins."""
    size = best = largest // 8
    best_rate = 0.0
    while True:
        seconds = seconds_at(size)
        if size == largest // 8 and seconds > GIVE_UP_S:
            raise Unmeasurable(f"a product of {size} cubed takes {seconds:.1f} s")
        rate = size**3 / seconds
        if rate > WORTH_GROWING * best_rate:
            best = size
        best_rate = max(rate, best_rate)
        if seconds >= enough_s or 2 * size > largest:
            return best
        size *= 2


def _refuse_impossible(bench: Bench, mode: str) -> None:
    if bench.kind == "cpu" and mode not in _CPU_MODES:
        raise Unmeasurable(f"a CPU has no {mode} products")
    if bench.kind == "cpu" and mode == "bf16" and tiles.are_broken():
        raise Unmeasurable(f"torch dies of them: this CPU's tiles are broken; {'='.join(tiles.WITHOUT)} does without")
    architecture = bench.machine.architecture or ""
    if architecture.startswith("sm_") and int(architecture[3:]) < _FIRST_ARCHITECTURE.get(mode, 0):
        raise Unmeasurable(f"{architecture} has no {mode} products")


def _seconds_once(bench: Bench, mode: str, size: int) -> float:
    import torch

    timed = bench.timed(_product(bench, mode, size))
    try:
        first_s = timed(1)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise Unmeasurable(f"torch refuses: {str(error).splitlines()[0]}") from None
    return first_s if first_s > GIVE_UP_S else timed(1)


def _product(bench: Bench, mode: str, size: int) -> Callable[[], object]:
    """One multiplication of two random matrices, the second column-major.

    That is the layout of `nn.Linear`, and the only one that fp8 products accept.
    """
    import torch

    a, b = _random(bench, mode, size), _random(bench, mode, size).t()
    if mode == "fp8":
        one = torch.ones((), device=bench.device, dtype=torch.float32)
        return partial(
            torch._scaled_mm,  # noqa: SLF001 (its public successor is newer than torch 2.11)
            a,
            b,
            scale_a=one,
            scale_b=one,
            out_dtype=torch.bfloat16,
            use_fast_accum=True,
        )
    if mode == "int8":
        return partial(torch._int_mm, a, b)  # noqa: SLF001 (the only door to int8 products)
    return partial(torch.mm, a, b, out=torch.empty_like(a))


def _random(bench: Bench, mode: str, size: int) -> "torch.Tensor":
    import torch

    if mode == "int8":
        return torch.randint(-128, 128, (size, size), device=bench.device, dtype=torch.int8)
    drawn = torch.float64 if mode == "fp64" else torch.float32
    kept = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp8": torch.float8_e4m3fn}.get(mode, drawn)
    return torch.randn(size, size, device=bench.device, dtype=drawn).to(kept)
