"""Is every workload whose regime and limiter are known called what it is?

    python benchmarks/regimes.py benchmarks/results/cpu2/regimes.json --device cpu
    python benchmarks/regimes.py benchmarks/results/h200/regimes.json --device cuda

Names after it take only the workloads whose name contains one of them; `--exams FOLDER` keeps the Exams.
"""

import argparse
import linecache
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import ClassVar

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

import workloads
from gobrrr import Workload, schema, units
from gobrrr.diagnose.diagnosis import Diagnosis, diagnose
from gobrrr.examination import examine
from workloads import Step

Check = Callable[[Diagnosis, Step], str | None]
"""What is wrong, in a few words."""


@dataclass(frozen=True, slots=True)
class Case:
    """A workload with what its Diagnosis has to say; None where it may say anything."""

    name: str
    make: Callable[[], Step | Workload]
    """Of a Workload the batch is doubled too."""
    regime: str | None
    limiter: str | None
    share: float = 0.0
    """Of the step, in that regime, at least."""
    attained: float = 0.0
    """Of the regime's seconds, at least."""
    checks: tuple[Check, ...] = ()

    def wrong(self, found: Diagnosis, step: Step) -> tuple[str, ...]:
        said = (
            None if self.regime in {None, found.regime} else f"regime is not {self.regime}",
            None if self.limiter in {None, found.limiter} else f"limiter is not {self.limiter}",
            None if share(found, self.regime) >= self.share else f"share below {units.percent(self.share, 0)}",
            None if attained(found, self.regime) >= self.attained else f"attained below {self.attained:.0%}",
            *(check(found, step) for check in self.checks),
        )
        return tuple(complaint for complaint in said if complaint is not None)


@dataclass(frozen=True, slots=True)
class Row:
    name: str
    step_s: float
    regime: str
    limiter: str
    shares: Mapping[str, float] | None
    attained: float
    """Of the seconds in its regime."""
    idle_share: float
    fraction_of_floor: float | None
    examined_s: float
    """How long the examination took, without building the workload."""
    warnings: tuple[str, ...]
    wrong: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Regimes:
    SCHEMA: ClassVar[str] = "regimes"
    VERSION: ClassVar[int] = 1

    machine: str
    torch: str
    rows: tuple[Row, ...]


def share(found: Diagnosis, regime: str | None) -> float:
    return (found.shares or {}).get(regime or found.regime, 0.0)


def attained(found: Diagnosis, regime: str | None) -> float:
    """Overhead attains nothing."""
    name = regime or found.regime
    return found.attained_s[name] / found.seconds[name] if found.attained_s.get(name) else 0.0


# What some must say besides


def headline_near(fraction: float, found: Diagnosis, _step: Step) -> str | None:
    said = found.fraction_of_floor
    return None if said is not None and abs(said - fraction) <= 0.05 else f"headline is not near {fraction:.0%}"


def names_the_sync(found: Diagnosis, _step: Step) -> str | None:
    sources = (sync.source.rpartition(":") for sync in found.syncs or () if sync.source)
    lines = (linecache.getline(file, int(line)) for file, _, line in sources)
    return None if any(".item()" in line for line in lines) else "the line of the sync is not named"


def finds(code: str, found: Diagnosis, _step: Step) -> str | None:
    return None if any(finding.code == code for finding in found.findings) else f"{code} is not found"


def does_not_find(code: str, found: Diagnosis, step: Step) -> str | None:
    return None if finds(code, found, step) else f"{code} is found"


def doubling_shows_overhead(found: Diagnosis, _step: Step) -> str | None:
    said = None if found.batch_test is None else found.batch_test.verdict
    return None if said == "overhead" else f"the batch test says {said}"


def idle_agrees(found: Diagnosis, step: Step) -> str | None:
    """Within 2 points of 1 − kernel time / T, the kernels timed by torch's profiler alone."""
    ours, theirs = found.idle_s / found.step_s, 1 - kernel_s(step) / found.step_s
    return None if abs(ours - theirs) <= 0.02 else f"idle {ours:.1%}, by the profiler alone {theirs:.1%}"


def kernel_s(step: Step, warmup: int = 20, steps: int = 5) -> float:
    """Of one step, all kernels and copies together; the device is warm as in a loop."""
    plan = schedule(wait=0, warmup=warmup, active=steps, repeat=1)
    with profile(activities=[ProfilerActivity.CUDA], schedule=plan) as profiler:
        for number in range(1, warmup + steps + 1):
            step()
            if number == warmup + steps:
                torch.cuda.synchronize()
            profiler.step()
    spans = (event for event in profiler.events() if event.device_type == DeviceType.CUDA)
    own = (event for event in spans if not getattr(event, "is_user_annotation", False))
    return sum(event.time_range.elapsed_us() for event in own) * 1e-6 / steps


# The workloads


def on_cpu(factory: Callable[..., Step], **sizes: object) -> Callable[[], Step]:
    return partial(factory, device="cpu", **sizes)


CPU = (
    # Where each op has fresh memory, giving back its pages between the ops is the host's time, and what limits depends.
    Case("pointwise chain, 64 MiB", on_cpu(workloads.pointwise_chain, elements=1 << 24), "bandwidth", None),
    Case(
        "pointwise chain in place, 64 MiB",
        on_cpu(workloads.pointwise_chain_in_place, elements=1 << 24),
        "bandwidth",
        "device",
        share=0.95,
        checks=(partial(headline_near, 1 / 3),),
    ),
    Case("row statistics, 128 MiB", on_cpu(workloads.row_statistics, rows=1 << 15), "bandwidth", None),
    Case(
        "gathered rows, 256 MiB table",
        on_cpu(workloads.gathered_rows, table_rows=1 << 20, picked=1 << 18),
        "bandwidth",
        None,
    ),
    Case(
        "matrix-vector products, 64 MiB each",
        on_cpu(workloads.matrix_vector_products, size=4096),
        "bandwidth",
        "device",
    ),
    Case(
        "matmul chain, 1024³ fp32",
        on_cpu(workloads.matmul_chain, size=1024, dtype=torch.float32),
        "compute",
        "device",
    ),
    Case(
        "transformer block, width 512",
        on_cpu(workloads.transformer_block, width=512, batch=8, tokens=128),
        "compute",
        "device",
    ),
    Case("convolutions, 64 channels", on_cpu(workloads.convolutions, channels=64, batch=4), "compute", "device"),
    Case("tiny training", on_cpu(workloads.tiny_training), "overhead", "host"),
    Case("many tiny ops", on_cpu(workloads.many_tiny_ops), "overhead", "host"),
    Case("tiny LSTM by hand", on_cpu(workloads.tiny_lstm), "overhead", "host"),
)

CUDA = (
    Case("pointwise chain, 1 GiB", workloads.pointwise_chain, "bandwidth", "device", share=0.95, attained=0.85),
    Case("row statistics, 1 GiB", workloads.row_statistics, "bandwidth", "device"),
    Case("gathered rows, 1 GiB table", workloads.gathered_rows, "bandwidth", "device"),
    Case("matrix-vector products, 1 GiB each", workloads.matrix_vector_products, "bandwidth", "device"),
    Case("matmul chain, 8192³ bf16", workloads.matmul_chain, "compute", "device", share=0.95, attained=0.85),
    Case("transformer block, width 4096", workloads.transformer_block, "compute", "device"),
    Case("convolutions, 256 channels", workloads.convolutions, "compute", "device"),
    Case("tiny with sync", workloads.tiny_with_sync, "overhead", "host", share=0.9, checks=(names_the_sync,)),
    Case("tiny training", workloads.tiny_training, "overhead", "host"),
    Case("many tiny ops", workloads.many_tiny_ops, "overhead", "host"),
    Case("tiny LSTM by hand", workloads.tiny_lstm, "overhead", "host"),
    *(
        Case(
            f"BERT-large forward, batch {batch}",
            partial(workloads.bert_large_forward, batch),
            "overhead",
            "host",
            checks=(doubling_shows_overhead,),
        )
        for batch in (1, 2, 4, 8)
    ),
    Case(
        "BERT-large training",
        workloads.bert_large,
        None,  # how much of it is overhead depends on how quick the host is: 31 to 56 % were seen
        "host",
        checks=(idle_agrees, partial(does_not_find, "B202")),
    ),
    Case("BERT-large training, eager attention", workloads.bert_large_eager_attention, None, None),
    Case("BERT-large training, compiled", workloads.bert_large_compiled, None, None, checks=(partial(finds, "B203"),)),
    Case("GPT-2 training", workloads.gpt2, None, None),
    Case("GPT-2 training, compiled", workloads.gpt2_compiled, None, None),
    Case("Llama decode, graphed", workloads.llama_decode, None, "device"),
)


def row(case: Case, exams: Path | None) -> Row:
    made = case.make()
    start = perf_counter()
    exam = examine(lambda: made, case.name, batch_test=isinstance(made, Workload))
    examined_s = perf_counter() - start
    if exams is not None:
        schema.write(exam, exams / f"{case.name.replace(' ', '_').replace(',', '')}.json.gz")
    found = diagnose(exam)
    return Row(
        name=case.name,
        step_s=found.step_s,
        regime=found.regime,
        limiter=found.limiter,
        shares=found.shares,
        attained=attained(found, case.regime),
        idle_share=found.idle_s / found.step_s,
        fraction_of_floor=found.fraction_of_floor,
        examined_s=examined_s,
        warnings=found.quality.warnings,
        wrong=case.wrong(found, made.step if isinstance(made, Workload) else made),
    )


def line(row: Row) -> str:
    leading = units.percent((row.shares or {}).get(row.regime), 0)
    return (
        f"{row.name:<38}{units.seconds(row.step_s):>9}  {row.regime:<9}{leading:>6}{units.percent(row.attained, 0):>8}"
        f"  {row.limiter:<8}{units.percent(row.idle_share, 0):>6}{units.percent(row.fraction_of_floor, 0):>9}"
        f"{row.examined_s:>6.1f} s  {'; '.join(row.wrong) or 'right'}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("json", type=Path, help="where to write the result")
    parser.add_argument("names", nargs="*", help="parts of the names of the workloads to take; all if none")
    parser.add_argument("--device", choices=("cpu", "cuda"), default=workloads.DEVICE)
    parser.add_argument("--exams", type=Path, help="keep the Exams in this folder")
    options = parser.parse_args()
    cases = CPU if options.device == "cpu" else CUDA
    chosen = [case for case in cases if not options.names or any(name in case.name for name in options.names)]
    print(f"{'workload':<38}{'T':>9}  {'regime':<9}{'share':>6}{'attained':>8}  limiter   idle headline  took  verdict")
    rows = []
    for case in chosen:
        rows.append(row(case, options.exams))
        print(line(rows[-1]), flush=True)
        schema.write(result(rows, options.device), options.json)  # what is done is kept, whatever the next one does
    sys.exit(any(each.wrong for each in rows))


def result(rows: list[Row], device: str) -> Regimes:
    from gobrrr.machine import identify

    return Regimes(machine=identify(device).name, torch=torch.__version__, rows=tuple(rows))


if __name__ == "__main__":
    main()
