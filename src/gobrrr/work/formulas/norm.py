"""Layer, group, batch and root-mean-square norms: x is read once and y written once.

A batch norm in training needs its statistics before it can normalise, so a kernel reads x twice unless it fits
on the chip; the least is once.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


def _per_element(call: Call, elements: int, flops: int, multiply_adds: int) -> Work:
    return counted(call, vector_flops=flops * elements, vector={"fma": multiply_adds * elements})


@formula("native_layer_norm", "native_group_norm", cls=OpClass.NORMALIZATION)
def layer_norm(call: Call) -> Work:
    """Mean 1, variance 3 (difference, square, sum), normalise 1, scale 1, shift 1: seven per element."""
    return _per_element(call, call.out.numel, 7, 5)


@formula("native_layer_norm_backward", "native_group_norm_backward", cls=OpClass.NORMALIZATION)
def layer_norm_backward(call: Call) -> Work:
    """x̂ again 2, dγ 2, dβ 1, dx̂ 1, two row sums 3, dx 5."""
    elements = call["grad_out"].numel
    return _per_element(call, elements, 14, 9)


@formula("_fused_rms_norm", cls=OpClass.NORMALIZATION)
def rms_norm(call: Call) -> Work:
    """Square, sum, normalise, scale: four per element."""
    return _per_element(call, call.out.numel, 4, 3)


@formula("_fused_rms_norm_backward", cls=OpClass.NORMALIZATION)
def rms_norm_backward(call: Call) -> Work:
    """x̂ again 1, dγ 2, dx̂ 1, one row sum 2, dx 3."""
    return _per_element(call, call["grad_out"].numel, 9, 6)


@formula(
    *"native_batch_norm _native_batch_norm_legit _native_batch_norm_legit_no_training "
    "_native_batch_norm_legit_functional "
    "_batch_norm_with_update _batch_norm_with_update_functional _batch_norm_no_update cudnn_batch_norm "
    "miopen_batch_norm".split(),
    cls=OpClass.NORMALIZATION,
)
def batch_norm(call: Call) -> Work:
    """As a layer norm when it trains; at inference the statistics are given and a multiply-add is left."""
    training = bool(call.args.get("training", "with_update" in call.name))
    return _per_element(call, call.out.numel, 7 if training else 2, 5 if training else 1)


@formula(
    *"native_batch_norm_backward batch_norm_backward cudnn_batch_norm_backward miopen_batch_norm_backward".split(),
    cls=OpClass.NORMALIZATION,
)
def batch_norm_backward(call: Call) -> Work:
    """As a layer norm's. `reserve` is workspace of the library and not read."""
    grad = next(call[name] for name in ("grad_out", "grad_output") if name in call.args)
    unread = {"reserve", "reserveSpace"}
    read = call.tensors(*(name for name in call.args if name not in unread))
    return counted(call, vector_flops=14 * grad.numel, vector={"fma": 9 * grad.numel}, read=distinct_bytes(read))
