"""One plan of treatments on one workload: does it apply, does it compute the same, what does it take, which kernels.

    python benchmarks/treat_plan.py bert_large fused-optimizer,compile-regions,whole-step-graph
    python benchmarks/treat_plan.py llama_decode_eager compile-tuned,whole-step-graph --no-check
    python benchmarks/treat_plan.py gpt2 compile --set triton.mix_order_reduction=False

For looking into what `gobrrr treat` would find by itself, in a fraction of its time, and what the compiler could do.
"""

import argparse
import re
from ast import literal_eval
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

from torch._inductor import config
from torch.profiler import ProfilerActivity, profile

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr import units
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CPU_STEP_EFFORT, CUDA_STEP_EFFORT, time_steps
from gobrrr.treat.compiling import FOR_GPUS, patient_compiler
from gobrrr.treat.cross_entropy import LOSS
from gobrrr.treat.losses import logits_asked_for
from gobrrr.treat.memory import peak_bytes
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.treatments.compile_regions import regions
from gobrrr.treat.treatments.compile_tuned import TUNED
from gobrrr.treat.treatments.merged_projections import AND, sharing_input
from gobrrr.treat.treatments.padded_products import is_odd
from gobrrr.treat.verify import truth, verified
from gobrrr.workload import load_factory

WORKLOADS = Path(__file__).parent / "workloads.py"
SHOWN = 25


def sites(name: str, subject: Subject) -> tuple[str, ...]:
    """Without an Exam: everywhere."""
    roots = tuple(f"{root}:" for root in subject.models)
    match name:
        case "fused-optimizer":
            return tuple(map(str, range(len(subject.optimizers))))
        case "whole-step-graph" | "no-grad" | "tf32" | "compile" | "compile-tuned":
            return ("step",)
        case "compile-regions":
            blocks = tuple(f"{root}:{path}" for root, model in subject.models.items() for path in regions(model))
            return (*blocks, LOSS) if logits_asked_for(subject) else blocks
        case "compile-loss":
            return (LOSS,)
        case "merged-projections":
            return tuple(AND.join(names) for names in sharing_input(subject))
        case "padded-products":
            return tuple(path for path, module in subject.modules() if is_odd(module))
        case "channels-last" | "int8-dynamic" | "conv-bn-fold":
            return TREATMENTS[name].kind.sites(SimpleNamespace(subject=subject, trains=False))
    return roots


def kernels(step: Callable[[], object], device: str) -> dict[str, tuple[float, int]]:
    """Seconds and number by name, numbers left out of the names."""
    activity = ProfilerActivity.CUDA if device.startswith("cuda") else ProfilerActivity.CPU
    with profile(activities=[activity]) as recorded:
        step()
    found: defaultdict[str, list[float]] = defaultdict(list)
    for event in recorded.events() or ():
        if event.device_type.name == activity.name:
            spent_us = event.device_time if activity.name == "CUDA" else event.self_cpu_time_total
            found[re.sub(r"_\d+$", "", event.name)[:90]].append(spent_us * 1e-6)
    return {name: (sum(times), len(times)) for name, times in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("workload", help="a factory of benchmarks/workloads.py, or FILE.py:NAME")
    parser.add_argument("plan", help="treatments, by comma; `none` for the step as it is")
    parser.add_argument("--no-check", action="store_true", help="time only")
    parser.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="of torch._inductor.config")
    options = parser.parse_args()
    target = options.workload if ":" in options.workload else f"{WORKLOADS}:{options.workload}"
    subject = subject_of(load_factory(target))
    device, clock = subject.device, DeviceClock(subject.device)
    names = [name for name in options.plan.split(",") if name != "none"]
    doses = [Dose(TREATMENTS[name], sites(name, subject)) for name in names]
    plan = tuple(sorted(doses, key=lambda dose: dose.treatment.stage))
    chosen = {name: literal_eval(value) for name, _, value in (one.partition("=") for one in options.set)}
    if owned := chosen.keys() & {*FOR_GPUS, *TUNED, "split_reductions"}:
        parser.error(f"treatments set {', '.join(sorted(owned))} themselves")
    with preserved(subject.origin) as ours, patient_compiler(), config.patch(chosen):
        for _ in range(3):
            subject.run()
        known = None if options.no_check else truth(subject)
        subject.become(plan)
        if known is not None:
            print(verified(subject, known, plan), flush=True)
        times = time_steps(subject.run, clock, CPU_STEP_EFFORT if device == "cpu" else CUDA_STEP_EFFORT)
        low, high = times.interval_s.low, times.interval_s.high
        shown = f"{units.seconds(times.step_s, 4)} ({units.seconds(low, 4)} to {units.seconds(high, 4)})"
        memory = units.capacity(peak_bytes(subject, ours.device_bytes))
        named = " ".join((options.workload, options.plan, *options.set))
        print(f"{named}: {shown}, first step {units.seconds(times.warm_up.first_s)}, {memory}")
        ran = kernels(subject.run, device)
        busy_s, number = (sum(column) for column in zip(*ran.values(), strict=True)) if ran else (0.0, 0)
        print(f"{number} kernels, {units.seconds(busy_s, 4)}")
        for name, (spent_s, calls) in sorted(ran.items(), key=lambda one: -one[1][0])[:SHOWN]:
            print(f"  {units.seconds(spent_s):>9} {calls:>5}  {name}")
        subject.end()


if __name__ == "__main__":
    main()
