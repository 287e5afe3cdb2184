"""What compilers can gain, from an Exam."""

from collections.abc import Callable, Iterable, Sequence
from shutil import which
from typing import Protocol

from gobrrr.predict.host import COMPILED, entering_s
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.cross_entropy import LOSS
from gobrrr.treat.edit import Edit
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Dose, Forecast, Kind, Unfit, graphless
from gobrrr.work.lineage import is_generated
from gobrrr.work.op import Op, OpClass, Phase


class Compiler(Kind, Protocol):
    """Of the treatments that compile."""

    def edits(self, subject: Subject, sites: tuple[str, ...], *, graphs: bool = False) -> Iterable[Edit]:
        """With CUDA graphs of its own, or without."""


def fusions(subject: Subject) -> list[Dose]:
    """Treatments in force that compile more than a loss."""
    return [dose for dose in subject.plan if dose.treatment.group == "fusion" and dose.sites != (LOSS,)]


def compiled_here(subject: Subject) -> bool:
    """By a treatment in force, whose compiler knows what others ask of it."""
    return bool(fusions(subject))


def is_update(op: Op) -> bool:
    return op.phase is Phase.OPTIMIZER


def is_compiled(op: Op) -> bool:
    """By whoever compiles a whole step: what an optimizer does is left as it is."""
    return not is_update(op)


def is_generated_for(chart: Chart, inside: Callable[[Op], bool] = is_compiled) -> bool:
    """Some op inside is done by compiled code already."""
    return any(is_generated(op) and inside(op) for op in chart.exam.dispatched)


def fit_to_compile(chart: Chart, inside: Callable[[Op], bool] = is_compiled) -> None:
    """Unfit where it was done, or where there is nothing to do it with."""
    if is_generated_for(chart, inside):
        raise Unfit("it is compiled already")
    need_compiler(chart)


def need_compiler(chart: Chart) -> None:
    if not chart.is_cuda and which("g++") is None and which("clang++") is None:
        raise Unfit("there is no C++ compiler here")


def one_pass_forecast(chart: Chart, *, host_s: float) -> Forecast:
    """Of optimizers that go once over parameters, gradients and state, at the bandwidth that such kernels reach."""
    took_s = sum(one.seconds for one in chart.kernels(is_update))
    groups = () if chart.case.fused is None else chart.case.fused.groups
    passes = [one.seconds or 0.0 for one in groups if all(is_update(chart.ops[op]) for op in one.group.ops)]
    floor_s = min(took_s, sum(passes))
    return chart.forecast(device_s=max(0.0, took_s - floor_s / REACHED), host_s=host_s, most_device_s=took_s - floor_s)


def fused_forecast(chart: Chart, *, calls: int, pads: bool, inside: Callable[[Op], bool] = is_compiled) -> Forecast:
    """Kernels inside that multiply nothing come down to generated ones, and products whose rows begin at odd places are
    padded where the compiler sees them.

    The host asks for one kernel a group and product instead of one an op.
    """
    is_fused = seen_by_compilers(chart, inside)
    ops = [op for op in chart.ops if is_fused(op)]
    kernels = len(chart.fused_groups(is_fused)) + sum(op.cls is OpClass.CONTRACTION for op in ops)
    host_s = compiled_host_s(chart, ops, kernels=kernels, calls=calls)
    padded_s = chart.device_s_of("B302") if pads else 0.0
    likely_s, most_s = chart.fusable_s(is_fused)
    return chart.forecast(device_s=likely_s + padded_s, host_s=host_s, most_device_s=most_s + padded_s)


def compiled_host_s(
    chart: Chart, ops: Sequence[Op], *, kernels: int, calls: int, phase: Phase = Phase.FORWARD
) -> float:
    """What the host saves that asks for kernels, a few dispatches each, instead of ops, and enters compiled code some
    times, which may cost it more: then less than nothing. And nothing where a graph is replayed.
    """
    case, plan = chart.case, chart.subject.plan
    asking_s = kernels * COMPILED * case.dispatch_s + entering_s(ops, calls, phase)
    return len(ops) * case.op_s - asking_s if graphless(plan) == plan else 0.0


def seen_by_compilers(chart: Chart, inside: Callable[[Op], bool] = is_compiled) -> Callable[[Op], bool]:
    """Whether an op is: torch.compile looks into recurrent layers by no means, unless its `allow_rnn` is set.

    Whether it compiles the function that calls one is another matter: torch 2.13 does not, 2.15 does.
    """
    from torch.nn import RNNBase

    recurrent = {site.partition(":")[2] for site, module in chart.subject.modules() if isinstance(module, RNNBase)}
    return lambda op: inside(op) and op.module.partition(".")[2] not in recurrent
