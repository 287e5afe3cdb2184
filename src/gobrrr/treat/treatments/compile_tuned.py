"""torch.compile for steps that mostly read weights: products of one row are generated, attention among them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gobrrr.treat.attention import argument, attention_nodes
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.compiling import Pass, as_eager, eager_attention, inductor_after
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import fit_to_compile
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.compile_whole import WHOLE, compiled_sites
from gobrrr.work.op import Op, OpClass

if TYPE_CHECKING:
    import torch

NARROW_SHARE = 0.3
"""Of busy time in products of one row, from which on generated kernels for them are worth their compilation."""


@treatment(
    "compile-tuned",
    "torch.compile, products of one row generated and tuned",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand="""
    # attention of one query written as a product, a softmax and a product, which then fuse with what is around them
    model.compile(options={"coordinate_descent_tuning": True})
    """,
)
class CompileTuned:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart)
        if not chart.is_cuda:
            raise Unfit("generated products are for CUDA devices")
        narrow_s = sum(one.seconds for one in chart.kernels(is_narrow))
        if narrow_s < NARROW_SHARE * chart.case.busy_s:
            raise Unfit("few of its products have one row")
        return WHOLE

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """All kernels near the fused floor: nothing is left to a library."""
        del sites
        floor_s = (chart.case.fused.seconds if chart.case.fused is not None else None) or 0.0
        most_s = max(0.0, chart.case.busy_s - floor_s)
        host_s = len(chart.ops) * chart.case.op_s / 2
        likely_s = max(0.0, chart.case.busy_s - floor_s / REACHED**2)
        return chart.forecast(device_s=likely_s, host_s=host_s, most_device_s=most_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        calls = eager_attention(subject) if sites == WHOLE else None
        passes: list[Pass] = [as_eager(calls)] if calls else []
        backend = inductor_after(*passes, one_query_spelled_out, coordinate_descent_tuning=True)
        yield from compiled_sites(subject, sites, backend)


def is_narrow(op: Op) -> bool:
    """A product that has one row on one side: it reads a matrix and does nothing with it twice."""
    if op.cls is not OpClass.CONTRACTION or not op.outputs:
        return False
    return min(op.outputs[0].shape[-2:], default=0) == 1 or op.outputs[0].numel == max(op.outputs[0].shape, default=0)


def one_query_spelled_out(graph: "torch.fx.Graph") -> None:
    """For one query a flash kernel has nothing to keep on the chip; spelled out, its parts fuse with what is around."""
    for node in attention_nodes(graph):
        query = argument(node, 0, "query")
        known = getattr(query, "meta", {}).get("example_value")
        if known is None or known.dim() != 4 or known.shape[-2] != 1 or argument(node, 4, "dropout_p", 0.0):
            continue
        with graph.inserting_before(node):
            spelled = graph.call_function(spelled_out, node.args, dict(node.kwargs))
        spelled.meta.update(node.meta)
        node.replace_all_uses_with(spelled)
        graph.erase_node(node)


def spelled_out(
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attn_mask: "torch.Tensor | None" = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 (the signature of what it stands for)
    *,
    scale: float | None = None,
    **_gqa: Any,
) -> "torch.Tensor":
    """Attention of one query by its definition, in fp32 as a kernel has it; heads that share keys are a dimension.

    For one query, causal means the first key alone: torch aligns the mask at the upper left.
    """
    import torch

    del dropout_p
    batch, heads, _, width = query.shape
    shared = key.shape[1]
    grouped = query.reshape(batch, shared, heads // shared, 1, width).float()
    keys, values = key[:, :, None].float(), value[:, :, None].float()
    scores = (grouped * keys).sum(-1) * (width**-0.5 if scale is None else scale)
    if is_causal:
        scores = scores.masked_fill(torch.arange(scores.shape[-1], device=scores.device) > 0, float("-inf"))
    if attn_mask is not None:
        spread = attn_mask.expand(batch, heads, 1, attn_mask.shape[-1]).reshape(batch, shared, heads // shared, -1)
        scores = scores.masked_fill(~spread, float("-inf")) if spread.dtype == torch.bool else scores + spread
    weights = scores.softmax(-1)
    found = (weights[..., None] * values).sum(-2)
    return found.reshape(batch, heads, 1, value.shape[-1]).to(query.dtype)
