"""Seconds of one function on one element, with the whole device at work on it: CUDA, through Triton."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

from gobrrr.machine.bench import Bench, Unmeasurable, slopes
from gobrrr.stats import Sample

WARPS = 8
BLOCKS_PER_MULTIPROCESSOR = 64
"""A last wave that is half empty then costs a few percent at most, whatever the occupancy."""

LOW_S = 3e-4
"""The shorter of the two kernels takes this long: ten times what launching it from Python does."""

_TRITON_NAMES = {"fp64": "float64", "fp32": "float32"}


def chain_seconds(bench: Bench, function: str, dtype: str) -> Sample:
    """The slope between a shorter and a four times longer chain, so that loads, stores and launch drop out."""
    launch, applications_a_round = _launcher(bench, function, dtype)
    pilot = bench.timed(partial(launch, 64))
    pilot(1)
    low = max(1, math.ceil(64 * LOW_S / pilot(1)))
    timed_low, timed_high = bench.timed(partial(launch, low)), bench.timed(partial(launch, 4 * low))
    return slopes(timed_low, timed_high, 3 * low * applications_a_round, bench.effort.brief())


def _launcher(bench: Bench, function: str, dtype: str) -> tuple[Callable[[int], object], int]:
    """A call that runs so many rounds on every element, and how often one round applies the function.

    A thread holds 8 multiply-add chains, twice what hides the latency of one, and unrolls them 32 times so
    that the loop itself is 1 % of the instructions; longer functions need neither.
    """
    import torch

    kernels = _kernels()
    plain = function == "fma"
    block, unroll = (2048, 32) if plain else (1024, 4)
    grid = (bench.machine.multiprocessors or 1) * BLOCKS_PER_MULTIPROCESSOR
    values = torch.rand(grid * block, device=bench.device, dtype=torch.float32) + 0.5
    results = torch.empty_like(values)

    def launch(rounds: int) -> object:
        return kernels.chains[(grid,)](
            values,
            results,
            rounds,
            -1.0 if plain else 1e-3,
            function=function,
            dtype=getattr(kernels.tl, _TRITON_NAMES[dtype]),
            block=block,
            unroll=unroll,
            num_warps=WARPS,
        )

    return launch, grid * block * unroll


def _kernels() -> Any:
    try:
        from gobrrr.machine.probes import kernels
    except ModuleNotFoundError:
        raise Unmeasurable("it takes Triton, which is not installed") from None
    return kernels
