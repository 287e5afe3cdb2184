"""torch.compile over the loss alone: where all else is better left as it is, or is compiled already."""

from collections.abc import Iterator

from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import generated_otherwise
from gobrrr.treat.cross_entropy import generated_loss
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import fused_forecast, need_compiler
from gobrrr.treat.losses import loss_alone, of_the_loss
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.compile_whole import BY_HAND


@treatment(
    "compile-loss",
    "torch.compile, the loss alone",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand=BY_HAND,
)
class CompileLoss:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        need_compiler(chart)
        found = loss_alone(chart)
        if not found:
            raise Unfit("it has no plain cross_entropy that is computed op by op")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        return fused_forecast(chart, calls=len(sites), pads=False, inside=of_the_loss(chart))

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        del sites
        yield from generated_otherwise(subject.device)
        yield from generated_loss()
