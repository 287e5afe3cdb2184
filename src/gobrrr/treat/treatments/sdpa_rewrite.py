"""Hand-written attention, product, softmax, product, as one call of scaled_dot_product_attention."""

from collections.abc import Iterator

from gobrrr.diagnose.grouping import grouping
from gobrrr.treat.attention import made_one_call, masks_named
from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import compiled, eager_after
from gobrrr.treat.edit import Edit
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.sdpa_switch import attention_forecast


@treatment(
    "sdpa-rewrite",
    "hand-written attention as scaled_dot_product_attention",
    stage=Stage.STRUCTURE,
    group="attention",
    by_hand="""
    y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, dropout_p=p)
    # was: softmax(q @ k.mT * scale + mask, -1) @ v
    """,
)
class SdpaRewrite:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        """The modules that the products of attention ran in."""
        flow = chart.case.flow
        attentions = [] if flow is None else grouping(chart.ops, flow).attentions
        places = {chart.ops[one.output].module.partition(".")[2] for one in attentions}
        found = tuple(name for name, _ in chart.subject.modules() if name.partition(":")[2] in places)
        if not found:
            raise Unfit("no module of it spells attention out")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        return attention_forecast(chart)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Traced by the compiler's front end, whose guards see to it that the trace holds, and run as it is."""
        backend = eager_after(made_one_call, masks_named)
        for site in sites:
            yield compiled(subject.module(site), backend=backend)
