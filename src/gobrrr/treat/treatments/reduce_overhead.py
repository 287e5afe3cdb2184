"""torch.compile's own CUDA graphs, where a step cannot be captured as a whole: of the parts between what breaks it."""

from collections.abc import Iterator
from typing import cast

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.fusing import Compiler, compiled_here, fusions
from gobrrr.treat.heeding import copied
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, NotYet, Stage, Unfit, treatment
from gobrrr.treat.treatments.compile_whole import WHOLE
from gobrrr.work.op import Phase
from gobrrr.workload import Step


@treatment(
    "reduce-overhead",
    "torch.compile with CUDA graphs of its own",
    stage=Stage.GRAPH,
    group="graph",
    risky=True,
    compiles=True,
    instead_of="whole-step-graph",
    by_hand="""
    import torch

    options = $options
    options["triton.cudagraphs"] = True
    # the next step writes where its results lie: clone what you keep
    $compiled
    """,
)
class ReduceOverhead:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("CUDA graphs need a CUDA device")
        if not compiled_here(chart.subject):
            raise NotYet("nothing was compiled by a treatment")
        return WHOLE

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """All of the host's work but the optimizer's and what it waits for."""
        del sites
        inside = sum(op.phase is not Phase.OPTIMIZER for op in chart.ops)
        return chart.forecast(host_s=inside * chart.case.op_s, device_s=0.0)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """What was compiled is compiled once more, in the same way, over what it was: the outermost counts. Whatever it
        is by then, as another way to compile may have taken its place.
        """
        del sites
        for dose in fusions(subject):
            yield from cast("Compiler", dose.treatment.kind).edits(subject, dose.sites, graphs=True)
        yield attribute(subject, "step", _copied_out(subject.step))


def _copied_out(step: Step) -> Step:
    """Of its results, what the next step would overwrite."""

    def called() -> object:
        return copied(step())

    return called
