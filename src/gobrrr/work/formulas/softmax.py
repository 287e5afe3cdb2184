"""Softmax and its logarithm: each row is read once, kept on the chip, and written once."""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


@formula("_softmax", "_safe_softmax", "_masked_softmax", cls=OpClass.NORMALIZATION)
def softmax(call: Call) -> Work:
    """Maximum, difference, exponential, sum, division: five per element."""
    elements = call.out.numel
    return counted(call, vector_flops=5 * elements, vector={"exp": elements, "fma": 4 * elements})


@formula("_log_softmax", cls=OpClass.NORMALIZATION)
def log_softmax(call: Call) -> Work:
    """Maximum, difference, exponential, sum, difference; one logarithm a row is nothing."""
    elements = call.out.numel
    return counted(call, vector_flops=5 * elements, vector={"exp": elements, "fma": 4 * elements})


@formula("_softmax_backward_data", "_masked_softmax_backward", cls=OpClass.NORMALIZATION)
def softmax_backward(call: Call) -> Work:
    """Dx = y·(dy − Σ y·dy): product, sum, difference, product."""
    elements = call.out.numel
    return counted(call, vector_flops=4 * elements, vector={"fma": 3 * elements})


@formula("_log_softmax_backward_data", cls=OpClass.NORMALIZATION)
def log_softmax_backward(call: Call) -> Work:
    """Dx = dy − exp(y)·Σ dy: sum, exponential, product, difference."""
    elements = call.out.numel
    return counted(call, vector_flops=4 * elements, vector={"exp": elements, "fma": 2 * elements})
