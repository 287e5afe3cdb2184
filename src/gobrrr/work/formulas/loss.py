"""Losses."""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Counts, Work


@formula("nll_loss_forward", "nll_loss2d_forward", cls=OpClass.INDEXING)
def nll_loss(call: Call) -> Work:
    """Picks one log-probability per target: N elements of N × V are read."""
    scores, target = call["self"], call["target"]
    weight = call["weight"].unique_bytes if call["weight"] is not None else 0
    picked = target.numel * scores.item_bytes
    return counted(
        call,
        vector_flops=target.numel,
        vector={"fma": target.numel},
        read=picked + target.unique_bytes + weight,
    )


@formula("nll_loss_backward", "nll_loss2d_backward", cls=OpClass.INDEXING)
def nll_loss_backward(call: Call) -> Work:
    """Writes N × V, nearly all zeros; of the scores only the shape is used."""
    target = call["target"]
    read = sum(tensor.unique_bytes for tensor in call.tensors("grad_output", "target", "weight", "total_weight"))
    return counted(call, vector_flops=target.numel, vector={"fma": target.numel}, read=read)


def _per_element(call: Call, flops: float, functions: Counts) -> Work:
    elements = max(tensor.numel for tensor in call.tensors())
    return counted(
        call,
        vector_flops=flops * elements,
        vector={function: number * elements for function, number in functions.items()},
    )


@formula(*"mse_loss smooth_l1_loss huber_loss l1_loss soft_margin_loss".split(), cls=OpClass.ELEMENTWISE)
def difference_loss(call: Call) -> Work:
    """Difference, square or magnitude, sum."""
    return _per_element(call, 3, {"fma": 2})


@formula(
    *"mse_loss_backward smooth_l1_loss_backward huber_loss_backward soft_margin_loss_backward".split(),
    cls=OpClass.ELEMENTWISE,
)
def difference_loss_backward(call: Call) -> Work:
    return _per_element(call, 3, {"fma": 2})


@formula("binary_cross_entropy", "binary_cross_entropy_with_logits", "kl_div", cls=OpClass.ELEMENTWISE)
def entropy_loss(call: Call) -> Work:
    """y·log x + (1 − y)·log(1 − x), two logarithms."""
    return _per_element(call, 5, {"log": 2, "fma": 3})


@formula("binary_cross_entropy_backward", cls=OpClass.ELEMENTWISE)
def entropy_loss_backward(call: Call) -> Work:
    """(x − y) / (x·(1 − x))."""
    return _per_element(call, 5, {"div": 1, "fma": 3})
