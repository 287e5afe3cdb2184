"""Weights of linear layers in int8, for steps that do little but read weights: half the bytes of bf16.

A generated kernel widens them on their way to the product, and the compiler generates that for products of one row
alone. With more rows a library multiplies, for which widened weights are written out and read again; and beyond some 90
rows on an H200 bytes of weights are not what limits. Parameters stay as they are, beside a copy in int8.
"""

from collections.abc import Iterator, Sequence

from gobrrr.diagnose.attribute import Attributed
from gobrrr.treat.chart import Chart, multiplying_for
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.product import Part, Product, product_of, quantized
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, NotYet, Numerics, Stage, Unfit, treatment
from gobrrr.work.op import Op, OpClass

REACHED = 0.75
"""Of the bytes saved, what is seen as time: narrower reads attain less of the bandwidth."""

GENERATES = "compile-tuned"
"""The treatment whose compiler generates products of one row."""


@treatment(
    "int8-weight-only",
    "weights in int8, widened as they are read",
    stage=Stage.STRUCTURE,
    group="int8",
    numerics=Numerics.QUANTIZED,
    allow="int8",
    compiles=True,
    inference=True,
    by_hand="""
    from functools import partial

    import torch
    from torch.nn.functional import linear


    def product(narrow, scale, bias, x):
        weight = (narrow * scale).to(x.dtype)  # compiled, as it is read
        if x.numel() != x.shape[-1]:  # more rows than one
            return linear(x, weight, bias)
        found = (x.unsqueeze(-2) * weight).sum(-1)
        return found if bias is None else found + bias


    for name in $names:
        layer = $model.get_submodule(name)
        weight = layer.weight.detach().float()
        scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-37) / 127
        narrow = (weight / scale).round().to(torch.int8)
        layer.forward = partial(product, narrow, scale, layer.bias)
    """,
)
class Int8WeightOnly:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if chart.trains:
            raise Unfit("only for inference")
        if not any(dose.treatment.name == GENERATES for dose in chart.subject.plan):
            raise NotYet(f"only {GENERATES} generates products that widen weights as they read them")
        rows = rows_of_layers(chart)
        found = tuple(name for name, number in rows.items() if number == 1)
        if not found:
            raise Unfit(f"its products have {max(rows.values())} rows, not one" if rows else "it has no linear layer")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """Of a product of one row nearly all time is the reading of its weight, of which one byte is left.

        Generated kernels do not always say whose product they compute: for such bytes at the memory's rate.
        """
        kernels = chart.products_of(sites)
        floors_s = sum(one.floor.seconds * _saved(chart, one) for one in kernels if one.floor is not None)
        named_s = sum(one.seconds * _saved(chart, one) for one in kernels)
        nameless_s, most_s = _unread_s(chart, sites, kernels)
        return chart.forecast(device_s=REACHED * (floors_s + nameless_s), most_device_s=named_s + most_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Layers that share a product share it in int8."""
        narrow: dict[int, Product] = {}
        for site in sites:
            layer = subject.module(site)
            now = product_of(layer)
            if isinstance(now, Part):
                whole = narrow.setdefault(id(now.whole), quantized(now.whole))
                yield attribute(layer, "forward", Part(whole, now.start, now.stop))
            elif now is not None:
                yield attribute(layer, "forward", quantized(now))


def rows_of_layers(chart: Chart) -> dict[str, int]:
    """Of each linear layer that a product was seen in, how many rows it multiplied."""
    rows = {
        op.module.partition(".")[2]: op.outputs[0].numel // op.outputs[0].shape[-1]
        for op in chart.ops
        if op.cls is OpClass.CONTRACTION and op.outputs and op.outputs[0].numel
    }
    paths = {name: name.partition(":")[2] for name, layer in chart.subject.modules() if is_wide(layer)}
    return {name: rows[path] for name, path in paths.items() if path in rows}


def is_wide(module: object) -> bool:
    """A linear layer with weights of more than a byte each."""
    from torch.nn import Linear

    return type(module) is Linear and module.weight.is_floating_point() and module.weight.itemsize > 1


def _unread_s(chart: Chart, sites: tuple[str, ...], named: Sequence[Attributed]) -> tuple[float, float]:
    """For weights of these whose product none of the named kernels computes: the bytes that are not read any more, at
    the memory's rate, and at most as large a part of all that the device takes besides.

    The same product of the same tensors, as layers that were merged ask for it, is computed once.
    """
    rate = chart.exam.ceilings.dram_bytes_per_s
    is_one, claimed = multiplying_for(sites), {op for one in named for op in one.kernel.fused_from or ()}
    products = {op.inputs for place, op in enumerate(chart.ops) if is_one(op) and op.inputs and place not in claimed}
    weights = [max(inputs, key=lambda ref: ref.numel) for inputs in products]
    unread = sum(ref.numel * (ref.item_bytes - 1) for ref in weights)
    if not unread:
        return 0.0, 0.0
    others_s = chart.case.busy_s - sum(one.seconds for one in named)
    most_s = unread / sum(ref.numel * ref.item_bytes for ref in weights) * others_s
    return most_s if rate is None else min(unread / rate, most_s), most_s


def _saved(chart: Chart, product: Attributed) -> float:
    """Of the bytes of its weight."""
    widths = [
        chart.ops[op].outputs[0].item_bytes for op in product.kernel.fused_from or () if _multiplies(chart.ops[op])
    ]
    return 1 - 1 / max(widths)


def _multiplies(op: Op) -> bool:
    return op.cls is OpClass.CONTRACTION and bool(op.outputs)
