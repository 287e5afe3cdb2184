"""What compilers can gain, from an Exam."""

from collections.abc import Callable, Sequence
from shutil import which

from gobrrr.predict.host import COMPILED, entering_s
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Unfit, graphless
from gobrrr.work.op import Op, OpClass, Phase


def fit_to_compile(chart: Chart) -> None:
    """Unfit where it was done, or where there is nothing to do it with."""
    if chart.exam.dispatched:
        raise Unfit("it is compiled already")
    if not chart.is_cuda and which("g++") is None and which("clang++") is None:
        raise Unfit("there is no C++ compiler here")


def compiled_here(subject: Subject) -> bool:
    """By a treatment in force, whose compiler knows what others ask of it."""
    return any(dose.treatment.group == "fusion" for dose in subject.plan)


def is_compiled(op: Op) -> bool:
    """By whoever compiles a whole step: what an optimizer does is left as it is."""
    return op.phase is not Phase.OPTIMIZER


def fused_forecast(chart: Chart, *, calls: int, pads: bool, inside: Callable[[Op], bool] = is_compiled) -> Forecast:
    """Kernels inside that multiply nothing come down to the fused floor, as far as generated code reaches the
    bandwidth, and products whose rows begin at odd places are padded where the compiler sees them.

    The host asks for one kernel a group and product instead of one an op.
    """
    is_fused = seen_by_compilers(chart, inside)
    ops = [op for op in chart.ops if is_fused(op)]
    kernels = len(chart.fused_groups(is_fused)) + sum(op.cls is OpClass.CONTRACTION for op in ops)
    host_s = compiled_host_s(chart, ops, kernels=kernels, calls=calls)
    padded_s = chart.device_s_of("B302") if pads else 0.0
    fusable_s = chart.fusable_s(is_fused)
    return chart.forecast(device_s=REACHED * fusable_s + padded_s, host_s=host_s, most_device_s=fusable_s + padded_s)


def compiled_host_s(chart: Chart, ops: Sequence[Op], *, kernels: int, calls: int) -> float:
    """What the host saves that asks for kernels, a few dispatches each, instead of ops, and enters compiled code some
    times, which may cost it more: then less than nothing. And nothing where a graph is replayed.
    """
    case, plan = chart.case, chart.subject.plan
    asking_s = kernels * COMPILED * case.dispatch_s + entering_s(ops, calls)
    return len(ops) * case.op_s - asking_s if graphless(plan) == plan else 0.0


def seen_by_compilers(chart: Chart, inside: Callable[[Op], bool] = is_compiled) -> Callable[[Op], bool]:
    """Whether an op is: torch.compile looks into recurrent layers by no means, unless its `allow_rnn` is set.

    Whether it compiles the function that calls one is another matter: torch 2.13 does not, 2.15 does.
    """
    from torch.nn import RNNBase

    recurrent = {site.partition(":")[2] for site, module in chart.subject.modules() if isinstance(module, RNNBase)}
    return lambda op: inside(op) and op.module.partition(".")[2] not in recurrent
