"""Inference without autograd: nothing is recorded that no backward pass will read."""

from collections.abc import Iterator
from typing import Any

from gobrrr.timing.state import preserved
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment


@treatment(
    "no-grad",
    "no gradients recorded",
    stage=Stage.HOST,
    by_hand="""
    import torch

    step = torch.no_grad()(step)
    """,
)
class NoGrad:
    """`no_grad` and not `inference_mode`: compilers like it as well, and its tensors can still be trained on."""

    def sites(self, chart: Chart) -> tuple[str, ...]:
        if chart.trains or chart.subject.optimizers:
            raise Unfit("the step trains")
        if not any(
            parameter.requires_grad for model in chart.subject.models.values() for parameter in model.parameters()
        ):
            raise Unfit("no parameter asks for a gradient")
        if chart.subject.workload is not None:
            raise Unfit("a workload that does not train runs without gradients already")
        if not _records(chart.subject):
            raise Unfit("it records no gradients")
        return ("step",)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """What recording costs the host, for each op."""
        del sites
        ceilings = chart.exam.ceilings
        each_s = max(0.0, (ceilings.dispatch_autograd_s or 0.0) - (ceilings.dispatch_s or 0.0))
        return chart.forecast(host_s=each_s * len(chart.ops))

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        del sites
        yield attribute(subject, "step", without_gradients(subject.step))


def _records(subject: Subject) -> bool:
    """Autograd numbers what it records."""
    from gobrrr.work.autograd_nodes import made_sequence_number

    with subject.ended(), preserved(subject.origin):
        before = made_sequence_number()
        subject.run()
        return made_sequence_number() != before


def without_gradients(step: Any) -> Any:
    import torch

    def run() -> Any:
        with torch.no_grad():
            return step()

    return run
