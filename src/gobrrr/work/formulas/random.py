"""Dropout and random numbers."""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


@formula("native_dropout", "_fused_dropout", cls=OpClass.ELEMENTWISE)
def dropout(call: Call) -> Work:
    """Reads x, writes y and a mask of one byte per element. Reported as one function, as the papers do."""
    elements = call.out.numel
    return counted(call, vector_flops=elements, vector={"random": elements, "fma": 2 * elements})


@formula(
    *"rand randn randint rand_like randn_like randint_like normal uniform exponential geometric log_normal cauchy "
    "random bernoulli randperm poisson binomial normal_functional _standard_gamma".split(),
    cls=OpClass.ELEMENTWISE,
)
def random_fill(call: Call) -> Work:
    """One number drawn per element. Filled tensors and `like` models are not read; probabilities are."""
    parameters = [name for name in ("p", "mean", "std", "lambda", "count", "prob") if name in call.args]
    read = distinct_bytes(call.tensors(*parameters)) if parameters else 0
    if not call.in_place and call.name in ("aten::bernoulli", "aten::poisson", "aten::_standard_gamma"):
        read = distinct_bytes(call.tensors("self"))
    elements = call.out.numel
    return counted(call, vector_flops=elements, vector={"random": elements}, read=read)


@formula("multinomial", cls=OpClass.OTHER)
def multinomial(call: Call) -> Work:
    """A running sum over the weights, then one search per sample."""
    weights = call["self"].numel
    return counted(call, vector_flops=weights, vector={"fma": weights, "random": call.out.numel})
