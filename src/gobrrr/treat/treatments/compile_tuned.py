"""torch.compile for steps that mostly read weights: products of one row are generated, attention among them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gobrrr.treat.attention import argument, attention_nodes
from gobrrr.treat.by_hand import as_dict
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.compiling import (
    COMBINED,
    FOR_CPUS,
    Pass,
    as_eager,
    eager_attention,
    generated_otherwise,
    inductor_after,
    is_for_gpus,
    kernels_timed_behind_a_head_start,
)
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import compiled_host_s, fit_to_compile, seen_by_compilers
from gobrrr.treat.one_row import queries_spelled_out, rows_spelled_out
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.compile_whole import WHOLE, compiled_sites, whole_or_models
from gobrrr.treat.writes import known
from gobrrr.work.op import Op, OpClass

if TYPE_CHECKING:
    from torch.fx import Graph

NARROW_SHARE = 0.3
"""Of busy time in products of one row, from which on generated kernels for them are worth their compilation."""

TUNED = {**COMBINED, "max_autotune_pointwise": True, "triton.enable_pdl": True}
"""A few sizes of block are tried for each kernel: coordinate descent tries dozens, one after the other, for minutes.
And a kernel begins before the last one has ended, where a device can do that: here many take no longer than to begin.
"""

FEW_KEYS = 2048
"""Up to which a sum over keys is one kernel: in parts it is shorter by less than the second kernel, which adds them. So
many are as far as it was measured: on an H200 a token then took 1.245 ms, and 1.275 in parts.
"""


def words_of(subject: Subject, sites: tuple[str, ...]) -> dict[str, str]:
    """By hand a kernel begins when the last one has ended: Inductor's own way to begin early may not wait for all."""
    roots = list(subject.models) if sites == WHOLE else [sites[0].partition(":")[0]]
    options = {**COMBINED, "max_autotune_pointwise": True} if subject.device.startswith("cuda") else FOR_CPUS
    modules = "chain(" + ", ".join(f"{root}.modules()" for root in roots) + ")"
    return {"modules": modules, "options": as_dict(options)}


@treatment(
    "compile-tuned",
    "torch.compile, products of one row generated and tuned",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand="""
    from functools import partial
    from itertools import chain

    import torch
    from torch.nn.functional import linear


    def product(layer, x):
        if x.numel() != x.shape[-1]:  # more rows than one
            return linear(x, layer.weight, layer.bias)
        found = (x.unsqueeze(-2) * layer.weight).sum(-1)  # is generated
        return found if layer.bias is None else found + layer.bias


    for layer in $modules:
        if type(layer) is torch.nn.Linear:
            layer.forward = partial(product, layer)
    # what gobrrr changes in the graph besides, as attention of one query,
    # gobrrr.apply alone does
    options = $options
    $compiled
    """,
    fills=words_of,
)
class CompileTuned:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart)
        seen = seen_by_compilers(chart)
        narrow_s = sum(one.seconds for one in chart.kernels(lambda op: is_narrow(op) and seen(op)))
        if narrow_s < NARROW_SHARE * chart.case.busy_s:
            raise Unfit("few of its products have one row")
        return whole_or_models(chart)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """All kernels near the fused floor: nothing is left to a library. On a CPU they are one function. At most the
        compulsory floor, where weights are still in the cache from the step before.
        """
        seen = seen_by_compilers(chart)
        groups = chart.fused_groups(seen)
        kernels = len(groups) if chart.is_cuda else 1
        host_s = compiled_host_s(chart, [op for op in chart.ops if seen(op)], kernels=kernels, calls=len(sites))
        floor_s = sum(one.seconds or 0.0 for one in groups)
        took_s = chart.case.busy_s - sum(one.seconds for one in chart.kernels(lambda op: not seen(op)))
        least_s = min(floor_s, chart.compulsory_s(seen))
        return chart.forecast(
            device_s=max(0.0, took_s - floor_s / REACHED**2), host_s=host_s, most_device_s=max(0.0, took_s - least_s)
        )

    def edits(self, subject: Subject, sites: tuple[str, ...], *, graphs: bool = False) -> Iterator[Edit]:
        calls = eager_attention(subject) if sites == WHOLE else None
        passes: list[Pass] = [as_eager(calls)] if calls else []
        if subject.device.startswith("cuda"):
            yield kernels_timed_behind_a_head_start()
        yield from generated_otherwise(subject.device)
        backend = inductor_after(*passes, queries_spelled_out, rows_spelled_out, options=tuned, graphs=graphs)
        yield from compiled_sites(subject, sites, backend)


def tuned(graph: "Graph") -> dict[str, Any]:
    if not is_for_gpus(graph):
        return FOR_CPUS
    keys = [known(argument(node, 1, "key")) for node in attention_nodes(graph)]
    return {**TUNED, "split_reductions": not keys or not all(map(_are_few, keys))}


def _are_few(keys: Any) -> bool:
    """And their number is known."""
    number = None if keys is None else keys.shape[-2]
    return isinstance(number, int) and number <= FEW_KEYS


def is_narrow(op: Op) -> bool:
    """A product of one row, or attention of one query: it reads a matrix and does nothing with it twice."""
    if op.cls is not OpClass.CONTRACTION or not op.outputs or not op.outputs[0].shape:
        return False
    found = op.outputs[0]
    return found.numel == found.shape[-1] or ("attention" in op.name and found.shape[-2:-1] == (1,))
