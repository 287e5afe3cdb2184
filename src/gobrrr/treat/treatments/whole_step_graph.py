"""The whole step, optimizer included, in one CUDA graph: the host asks once for all of its kernels."""

from collections.abc import Iterator

from gobrrr.treat.bookkeeping import books_kept
from gobrrr.treat.capture import captured
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute, gradient, rebinding
from gobrrr.treat.heeding import heeding
from gobrrr.treat.optimizers import FUSED, can_be_fused, capturable, flags, is_fused, rates_in_tensors
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
    optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-4, device="cuda"), capturable=True, fused=True)
    for _ in range(3):  # on a side stream: torch.cuda.Stream()
        step()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        loss = step()
    # then, for each batch: copy it into the tensors that step() reads, and
    graph.replay()
    """,
)
class WholeStepGraph:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("CUDA graphs need a CUDA device")
        if chart.exam.syncs:
            raise Unfit(f"the host waits for the device in the step, {len(chart.exam.syncs)} times")
        for optimizer in chart.subject.optimizers:
            if not can_be_captured(optimizer):
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
            if can_be_fused(optimizer):
                yield from flags(optimizer, FUSED)
            yield from rates_in_tensors(optimizer)
            yield from capturable(optimizer)
        graph = captured(subject)
        for one in graph.gradients:
            if one.left is not one.parameter.grad and not one.added:
                yield gradient(one.parameter, one.left)
        for place, computed in graph.bound:
            yield rebinding(place.find, place.bind, computed)
        yield attribute(subject, "step", heeding(subject, graph))


def refuse_books(subject: Subject) -> None:
    if books_kept(subject):
        raise Unfit("the step counts, logs or sets a rate in Python, and a graph replays kernels alone")


def can_be_captured(optimizer: object) -> bool:
    """Torch's own that say so; of those that count no steps, SGD, whose rate a fused kernel reads from the device."""
    groups = optimizer.param_groups  # type: ignore[attr-defined]
    if all("capturable" in group for group in groups):
        return type(optimizer).__module__.startswith("torch.optim")
    return type(optimizer).__name__ == "SGD" and (can_be_fused(optimizer) or is_fused(optimizer))
