"""What one call of attention would gain where it is spelled out: measured alone, at the shapes of the program."""

from collections import Counter
from collections.abc import Iterator, Sequence
from math import prod

from gobrrr.diagnose.findings.attention import took_s
from gobrrr.diagnose.findings.unfused_attention import written_out
from gobrrr.diagnose.grouping import Attention, grouping
from gobrrr.treat.backends import BY_HAND, AttentionShape, calls_seconds
from gobrrr.treat.chart import Chart
from gobrrr.treat.treatment import Forecast
from gobrrr.work.op import Op, TensorRef

LIKELY = 0.7
"""Of all that is above a flash kernel's floor, where no call can be made to be timed."""

DROPPED = 0.1
"""A rate of dropout, which the program does not hold and on which no time depends."""


def attention_forecast(chart: Chart) -> Forecast:
    """As much faster as such calls are alone. At most, by the finding, all above a flash kernel's floor, or that: some
    kernels compute exponentials by other units than the floor's.
    """
    most_s = chart.device_s_of("B202")
    ratio = _ratio(chart) if most_s else None
    if ratio is None:
        return chart.forecast(device_s=LIKELY * most_s, most_device_s=most_s)
    now_s = sum(took_s(chart.case, ops) for ops in set(written_out(chart.case)))
    gained_s = max(0.0, 1 - ratio) * now_s
    return chart.forecast(device_s=gained_s, most_device_s=max(most_s, gained_s))


def _ratio(chart: Chart) -> float | None:
    """Of one call's time to that of what it stands for; None where it cannot be made from the program, or not here."""
    shapes = list(spelled_shapes(chart))
    if not shapes or None in shapes:
        return None
    calls = Counter(shape for shape in shapes if shape is not None).items()
    called_s, spelled_s = (calls_seconds(calls, how, chart.subject.device) for how in (None, BY_HAND))
    return None if called_s is None or spelled_s is None else called_s / spelled_s


def spelled_shapes(chart: Chart) -> Iterator[AttentionShape | None]:
    """Of each attention that is spelled out, the call that it could be; None where its products do not tell."""
    if chart.case.flow is not None:
        for one in grouping(chart.ops, chart.case.flow).attentions:
            yield _shape(chart.ops, one)


def _shape(ops: Sequence[Op], attention: Attention) -> AttentionShape | None:
    import torch

    from gobrrr.work.meta import TORCH_DTYPES

    first, last, between = ops[attention.scores], ops[attention.output], ops[attention.scores + 1 : attention.output]
    sizes = [ref.shape for op in (first, last) for ref in op.inputs]
    softmax = next((op.outputs[0].shape for op in between if "softmax" in op.name and op.outputs), ())
    dtype = TORCH_DTYPES.get(first.inputs[0].dtype)
    if [len(size) for size in sizes] != [3] * 4 or prod(softmax[:-2]) != sizes[0][0] or dtype is None:
        return None
    heads = softmax[:-2] if len(softmax) > 3 else (1, *softmax[:-2])
    query, _, _, value = sizes
    mask = next(_joined(first, between), None)
    if mask is not None and not _spreads(mask.shape, (*heads, query[1], value[1])):
        return None
    return AttentionShape(
        query=(*heads, *query[1:]),
        key=(*heads, value[1], query[2]),
        value=(*heads, *value[1:]),
        mask=None if mask is None else mask.shape,
        mask_dtype=None if mask is None else torch.bool if mask.dtype == "bool" else dtype,
        dtype=dtype,
        dropout=DROPPED if any("dropout" in op.name or "bernoulli" in op.name for op in between) else 0.0,
        causal=False,
        grouped=False,
        trains=attention.backward is not None,
    )


def _spreads(mask: tuple[int, ...], scores: tuple[int, ...]) -> bool:
    pairs = zip(reversed(mask), reversed(scores), strict=False)
    return len(mask) <= len(scores) and all(one in (1, other) for one, other in pairs)


def _joined(first: Op, between: Sequence[Op]) -> Iterator[TensorRef]:
    """Masks: what the scores meet on their way to the second product."""
    scores = {ref.storage for ref in first.outputs}
    for op in between:
        if any(ref.storage in scores for ref in op.inputs):
            yield from (ref for ref in op.inputs if ref.storage not in scores and len(ref.shape) > 1)
            scores.update(ref.storage for ref in op.outputs)
