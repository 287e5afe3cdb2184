"""Counting a training step of an 8-billion-parameter Llama shape: gobrrr's counter beside FlopCounterMode.

    python benchmarks/count_time.py benchmarks/results/count_time.json

Both count the same step on fake tensors, in alternation. The peer counts the FLOPs of contractions under a plain
FakeTensorMode; ours counts every op's FLOPs, bytes, module, line and memory, and keeps the values of small tensors. As
many key-value as query heads, because the peer raises on fewer before torch 2.12. The bar is 1.3 times the peer.
"""

import sys
import time
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch
import transformers
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from gobrrr import schema, units
from gobrrr.machine.identity import cpu_model
from gobrrr.stats import compare
from gobrrr.work.counter import Counter
from gobrrr.work.fake import SmallValues
from gobrrr.work.tally import Tally, tally
from gobrrr.workload import Workload

PAIRS = 9
BAR = 1.3


@dataclass(frozen=True, slots=True)
class CountTime:
    SCHEMA: ClassVar[str] = "count_time"
    VERSION: ClassVar[int] = 1

    machine: str
    torch: str
    parameters: int
    ratio: float
    ratio_low: float
    ratio_high: float
    bar: float
    ours_s: tuple[float, ...]
    peer_s: tuple[float, ...]
    flops_dense: float
    peer_flops: float
    """Without the CPU's attention kernel, for which the peer has no formula."""
    coverage: dict[str, float]
    grouped_query_flops_dense: float
    grouped_query_coverage: dict[str, float]


def llama_8b(key_value_heads: int) -> Workload:
    config = transformers.LlamaConfig(
        vocab_size=128256,
        hidden_size=4096,
        num_hidden_layers=32,
        num_attention_heads=32,
        num_key_value_heads=key_value_heads,
        intermediate_size=14336,
        use_cache=False,
        dtype=torch.bfloat16,
    )
    model = transformers.AutoModelForCausalLM.from_config(config)
    ids = torch.randint(config.vocab_size, (1, 2048))
    return Workload(model, {"input_ids": ids, "labels": ids}, optimizer=torch.optim.AdamW(model.parameters()))


@dataclass(frozen=True, slots=True)
class Side:
    """A workload on fake tensors of its own."""

    modes: tuple[AbstractContextManager[object], ...]
    workload: Workload

    @classmethod
    def made(cls, modes: tuple[AbstractContextManager[object], ...], key_value_heads: int) -> "Side":
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(mode)
            workload = llama_8b(key_value_heads)
            workload.step()
        return cls(modes, workload)

    def step_s(self, counter: AbstractContextManager[object]) -> float:
        with ExitStack() as stack:
            for mode in (*self.modes, counter):
                stack.enter_context(mode)
            start = time.perf_counter()
            self.workload.step()
            return time.perf_counter() - start


def valued_modes() -> tuple[AbstractContextManager[object], ...]:
    mode = FakeTensorMode(allow_non_fake_inputs=True)
    return mode, SmallValues(mode)


def grouped_query_count() -> Tally:
    counter = Counter()
    Side.made(valued_modes(), key_value_heads=8).step_s(counter)
    return tally(counter.program())


def measured() -> CountTime:
    peer = Side.made((FakeTensorMode(allow_non_fake_inputs=True),), key_value_heads=32)
    ours = Side.made(valued_modes(), key_value_heads=32)
    counters = [(Counter(), FlopCounterMode(display=False)) for _ in range(PAIRS)]
    times = [(ours.step_s(our_counter), peer.step_s(peer_counter)) for our_counter, peer_counter in counters]
    ours_s, peer_s = (tuple(column) for column in zip(*times, strict=True))
    comparison = compare(ours_s, peer_s)
    count, grouped = tally(counters[-1][0].program()), grouped_query_count()
    return CountTime(
        machine=cpu_model(),
        torch=torch.__version__,
        parameters=sum(parameter.numel() for parameter in ours.workload.model.parameters()),
        ratio=comparison.speedup,
        ratio_low=comparison.interval.low,
        ratio_high=comparison.interval.high,
        bar=BAR,
        ours_s=ours_s,
        peer_s=peer_s,
        flops_dense=count.flops_dense,
        peer_flops=counters[-1][1].get_total_flops(),
        coverage=dict(count.coverage),
        grouped_query_flops_dense=grouped.flops_dense,
        grouped_query_coverage=dict(grouped.coverage),
    )


def main() -> None:
    result = measured()
    schema.write(result, Path(sys.argv[1]))
    print(f"{result.machine}, torch {result.torch}, {units.count(result.parameters)} parameters, {PAIRS} pairs")
    print(f"ours / peer: {units.times(result.ratio)} ({result.ratio_low:.3f} to {result.ratio_high:.3f}); bar {BAR}")
    print(f"dense FLOPs: ours {units.flops(result.flops_dense)}, peer {units.flops(result.peer_flops)}")
    print(
        f"formula coverage {units.percent(result.coverage['formula'])}; with 8 key-value heads "
        f"{units.flops(result.grouped_query_flops_dense)}, {units.percent(result.grouped_query_coverage['formula'])}"
    )


if __name__ == "__main__":
    main()
