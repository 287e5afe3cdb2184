"""The whole step, optimizer included, in one CUDA graph: the host asks once for all of its kernels."""

from collections.abc import Iterator
from contextlib import ExitStack

from gobrrr.treat.bookkeeping import books_kept
from gobrrr.treat.by_hand import optimizer_name, settings_code
from gobrrr.treat.capture import captured
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute, gradient, rebinding
from gobrrr.treat.heeding import heeding
from gobrrr.treat.optimizers import FUSED, Rates, can_be_fused, capturable, flags, is_fused, saved_as_it_was
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment

GAP_S = 0.6e-6
"""Between two kernels of a graph, on the device."""


@treatment(
    "whole-step-graph",
    "whole step in a CUDA graph",
    stage=Stage.GRAPH,
    group="graph",
    risky=True,
    by_hand="""
    import torch

    # the last of all: a graph replays what it was captured with
    $settings
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):  # these are steps like any other
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()


    def step():  # copy each batch into the tensors that were read then
        graph.replay()
        return result
    """,
    fills=lambda subject, _: {"settings": "\n".join(_as_code(subject))},
)
class WholeStepGraph:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("CUDA graphs need a CUDA device")
        if chart.exam.syncs:
            raise Unfit(f"the host waits for the device in the step, {len(chart.exam.syncs)} times")
        for optimizer in chart.subject.optimizers:
            if not can_be_captured(optimizer, chart.subject):
                raise Unfit(f"{type(optimizer).__name__} cannot be captured")
        refuse_books(chart.subject)
        return ("step",)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """What is left are the kernels, a little apart, and one call."""
        del sites
        case, step_s = chart.case, chart.exam.step_s
        apart_s = GAP_S * len(case.kernels)
        least_s = max(case.busy_s, 0.01 * step_s)
        return Forecast(step_s / (least_s + apart_s), step_s / (least_s + 4 * apart_s), step_s / least_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Optimizers in the fused form where there is one: the other computes its corrections by the step's count in
        fp32, badly.
        """
        del sites
        refuse_books(subject)
        for optimizer in subject.optimizers:
            yield saved_as_it_was(optimizer)
            if can_be_fused(optimizer, subject):
                yield from flags(optimizer, FUSED)
            yield from capturable(optimizer)
        rates = [Rates(optimizer) for optimizer in subject.optimizers]
        with ExitStack() as stack:
            for own in rates:
                stack.enter_context(own.in_tensors())
            graph = captured(subject)
        for one in graph.gradients:
            if one.left is not one.parameter.grad and not one.added:
                yield gradient(one.parameter, one.left)
        for place, computed in graph.bound:
            yield rebinding(place.find, place.bind, computed)
        yield attribute(subject, "step", heeding(subject, graph, rates))


def _as_code(subject: Subject) -> Iterator[str]:
    """Its settings as it is in force."""
    for place, optimizer in enumerate(subject.optimizers):
        flags = {**(FUSED if is_fused(optimizer) else {}), "capturable": True}
        yield settings_code(optimizer_name(place), optimizer, subject.device, **flags)


def refuse_books(subject: Subject) -> None:
    if books_kept(subject):
        raise Unfit("the step counts, logs or sets a rate in Python, and a graph replays kernels alone")


def can_be_captured(optimizer: object, subject: Subject) -> bool:
    """Torch's own that say so; of those that count no steps, SGD, whose rate a fused kernel reads from the device."""
    groups = optimizer.param_groups  # type: ignore[attr-defined]
    if all("capturable" in group for group in groups):
        return type(optimizer).__module__.startswith("torch.optim")
    return type(optimizer).__name__ == "SGD" and (can_be_fused(optimizer, subject) or is_fused(optimizer))
