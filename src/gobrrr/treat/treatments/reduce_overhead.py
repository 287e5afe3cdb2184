"""torch.compile's own CUDA graphs, where a step cannot be captured as a whole."""

from collections.abc import Iterator

from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import compiled
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import is_generated_for
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.whole_step_graph import WholeStepGraph
from gobrrr.work.op import Phase


@treatment(
    "reduce-overhead",
    "torch.compile with CUDA graphs of its own",
    stage=Stage.GRAPH,
    group="graph",
    risky=True,
    compiles=True,
    by_hand="""
    model.compile(mode="reduce-overhead")
    """,
)
class ReduceOverhead:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda or not chart.subject.models:
            raise Unfit("CUDA graphs need a CUDA device and a model")
        if not is_generated_for(chart):
            raise Unfit("nothing is compiled yet")
        try:
            WholeStepGraph().sites(chart)
        except Unfit:
            return tuple(f"{root}:" for root in chart.subject.models)
        raise Unfit("a graph of the whole step does more")

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """All of the host's work but the optimizer's and what it waits for."""
        del sites
        inside = sum(op.phase is not Phase.OPTIMIZER for op in chart.ops)
        return chart.forecast(host_s=inside * chart.case.op_s, device_s=0.0)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            yield from compiled(subject.module(site), mode="reduce-overhead")
