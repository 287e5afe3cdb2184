"""Sorting and selection: bytes once, comparisons as the theory has them."""

from math import log2

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


@formula("sort", "argsort", "msort", cls=OpClass.OTHER)
def sort(call: Call) -> Work:
    """n·log₂(row) comparisons; a radix sort compares less and passes over the data several times."""
    values = call["self"]
    row = values.shape[call.args.get("dim", -1)] if values.shape else 1
    comparisons = values.numel * max(1.0, log2(max(1, row)))
    return counted(call, vector_flops=comparisons, vector={"fma": comparisons})


@formula("topk", "kthvalue", "median", "nanmedian", "mode", cls=OpClass.OTHER)
def select(call: Call) -> Work:
    """Every element compared once."""
    elements = call["self"].numel
    return counted(call, vector_flops=elements, vector={"fma": elements})
