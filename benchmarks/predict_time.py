"""Predicting a training step of an 8-billion-parameter Llama for ten accelerators, over counting it once.

    python -m benchmarks.predict_time benchmarks/results/predict_time.json

Both sides begin with the factory: build the model on fake tensors, step once so that the optimizer has its state, count
a step. The prediction counts as a CUDA device would run it and then times all kernels for each accelerator, none of
them remembered from before. In alternation. The bar is 3 times.
"""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

import torch
from benchmarks.count_time import llama_8b

from gobrrr import schema, units
from gobrrr.machine import datasheets
from gobrrr.machine.identity import cpu_model
from gobrrr.predict.kernels import of_call
from gobrrr.predict.prediction import predictions
from gobrrr.predict.product import _candidates
from gobrrr.stats import compare
from gobrrr.work.count import count_elsewhere, count_workload

PAIRS = 5
BAR = 3.0
ON = "v100-sxm2 a100-sxm4-80gb a40 l4 l40s h100-sxm h200-sxm b200-sxm mi300x rtx4090".split()
FACTORY = partial(llama_8b, key_value_heads=8)


@dataclass(frozen=True, slots=True)
class PredictTime:
    SCHEMA: ClassVar[str] = "predict_time"
    VERSION: ClassVar[int] = 1

    machine: str
    torch: str
    accelerators: tuple[str, ...]
    ratio: float
    ratio_low: float
    ratio_high: float
    bar: float
    predicted_in_s: tuple[float, ...]
    counted_in_s: tuple[float, ...]


def predict() -> None:
    of_call.cache_clear()
    _candidates.cache_clear()
    sheets = [sheet for name in ON if (sheet := datasheets.find(name))]
    found = predictions(
        "llama_8b", lambda scale: count_elsewhere(FACTORY, traced=scale.traced), sheets, changes=(), ceilings=()
    )
    if len(found.predictions) != len(ON):
        raise LookupError("an accelerator has no datasheet")


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measured() -> PredictTime:
    times = [(seconds(predict), seconds(partial(count_workload, FACTORY))) for _ in range(1 + PAIRS)][1:]
    predicted, counted = (tuple(column) for column in zip(*times, strict=True))
    ratio = compare(predicted, counted)
    return PredictTime(
        machine=cpu_model(),
        torch=torch.__version__,
        accelerators=tuple(ON),
        ratio=ratio.speedup,
        ratio_low=ratio.interval.low,
        ratio_high=ratio.interval.high,
        bar=BAR,
        predicted_in_s=predicted,
        counted_in_s=counted,
    )


def main() -> None:
    result = measured()
    schema.write(result, Path(sys.argv[1]))
    print(
        f"{result.machine}, torch {result.torch}: {len(ON)} accelerators predicted in {units.times(result.ratio)} "
        f"({result.ratio_low:.2f} to {result.ratio_high:.2f}) of one count; bar {BAR:g}"
    )


if __name__ == "__main__":
    main()
