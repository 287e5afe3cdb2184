"""Is `step_s` what a plain loop takes? gobrrr's windows beside the loop that a user would write.

    python benchmarks/step_time.py benchmarks/results/cpu2/step_time.json --device cpu
    python benchmarks/step_time.py benchmarks/results/h200/step_time.json --device cuda

One process, ABAB…: A is a window of gobrrr's, of as many steps as it gives a window when it times T; B is twice as many
steps, one synchronisation, the wall clock, over their number. So what the end of a short window adds would be seen. The
ratio of neighbours is kept, its interval is a bootstrap's. Bars: ± 5 % on a CPU; on an H200 ± 2 %, or ± 5 % where the
host limits.
"""

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import torch

import workloads
from gobrrr import schema, units
from gobrrr.machine import identify
from gobrrr.stats import Sample, compare
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, time_steps, timed
from workloads import Step

PAIRS = 15
BAR_CPU, BAR_DEVICE, BAR_HOST = 0.05, 0.02, 0.05


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    bar: float
    """How far from 1 either end of the ratio's interval may lie."""
    ratio: float
    """Of a window's step to the plain loop's."""
    ratio_low: float
    ratio_high: float
    step_s: float
    """T, by the same windows before."""
    window_steps: int
    window_step_s: tuple[float, ...]
    loop_step_s: tuple[float, ...]

    @property
    def is_within(self) -> bool:
        return max(self.ratio_high - 1, 1 - self.ratio_low) <= self.bar


@dataclass(frozen=True, slots=True)
class StepTime:
    SCHEMA: ClassVar[str] = "step_time"
    VERSION: ClassVar[int] = 1

    machine: str
    torch: str
    rows: tuple[Row, ...]


def on_cpu(factory: Callable[..., Step], **sizes: object) -> Callable[[], Step]:
    return partial(factory, device="cpu", **sizes)


CPU = (
    ("pointwise chain, 16 MiB", on_cpu(workloads.pointwise_chain, elements=1 << 22), BAR_CPU),
    ("matmul chain, 512³ fp32", on_cpu(workloads.matmul_chain, size=512, dtype=torch.float32), BAR_CPU),
    ("transformer block, width 128", on_cpu(workloads.transformer_block, width=128, batch=4, tokens=64), BAR_CPU),
    ("tiny training", on_cpu(workloads.tiny_training), BAR_CPU),
    ("many tiny ops", on_cpu(workloads.many_tiny_ops), BAR_CPU),
)

CUDA = (
    ("pointwise chain, 1 GiB", workloads.pointwise_chain, BAR_DEVICE),
    ("matmul chain, 8192³ bf16", workloads.matmul_chain, BAR_DEVICE),
    ("GPT-2 training", workloads.gpt2, BAR_DEVICE),
    ("BERT-large training", workloads.bert_large, BAR_HOST),
    ("BERT-large forward, batch 1", lambda: workloads.bert_large_forward().step, BAR_HOST),
    ("tiny with sync", workloads.tiny_with_sync, BAR_HOST),
)


def plain_loop_s(step: Step, steps: int, device: str) -> float:
    """What a user writes."""
    if device != "cpu":
        torch.cuda.synchronize()
    start = perf_counter()
    for _ in range(steps):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (perf_counter() - start) / steps


def row(name: str, make: Callable[[], Step], bar: float, *, device: str, pairs: int) -> Row:
    step = make()
    clock = DeviceClock("cpu" if device == "cpu" else "cuda:0")
    times = time_steps(step, clock, CPU_STEP_EFFORT if device == "cpu" else CUDA_STEP_EFFORT)
    steps = times.window_steps
    both = [(timed(step, clock, steps) / steps, plain_loop_s(step, 2 * steps, device)) for _ in range(pairs)]
    window_s, loop_s = (tuple(column) for column in zip(*both, strict=True))
    ratio = compare(window_s, loop_s)
    low, high = ratio.interval.low, ratio.interval.high
    return Row(name, bar, ratio.speedup, low, high, times.step_s, steps, window_s, loop_s)


def line(row: Row) -> str:
    window_s, loop_s = (units.seconds(Sample(values).median) for values in (row.window_step_s, row.loop_step_s))
    return (
        f"{row.name:<32}{units.seconds(row.step_s):>9}{window_s:>9}{loop_s:>9}{row.ratio:>9.3f}"
        f"  {row.ratio_low:.3f} to {row.ratio_high:.3f}   ± {row.bar:.0%}  "
        f"{'within' if row.is_within else 'NOT WITHIN'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("json", type=Path, help="where to write the result")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=workloads.DEVICE)
    parser.add_argument("--pairs", type=int, default=PAIRS)
    options = parser.parse_args()
    print(f"{'workload':<32}{'T':>9}{'window':>9}{'loop':>9}{'ratio':>9}  95 %             bar")
    rows = []
    for name, make, bar in CPU if options.device == "cpu" else CUDA:
        rows.append(row(name, make, bar, device=options.device, pairs=options.pairs))
        print(line(rows[-1]), flush=True)
    schema.write(StepTime(identify(options.device).name, torch.__version__, tuple(rows)), options.json)
    sys.exit(not all(each.is_within for each in rows))


if __name__ == "__main__":
    main()
