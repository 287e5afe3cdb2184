"""Fused optimizers: one pass over parameter, gradient and state.

With fp32 parameters AdamW reads p, g, m and v and writes p, m and v: 28 bytes a parameter. The gradient is
written back only where a gradient scaler is folded in. Step counters are one number a tensor and counted.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Counts, Work


def fused(call: Call, written: tuple[str, ...], flops: float, functions: Counts) -> Work:
    parameters = sum(tensor.numel for tensor in call.tensors("self"))
    unscaled = ("grads",) if call.args.get("grad_scale") is not None else ()
    return counted(
        call,
        vector_flops=flops * parameters,
        vector={function: number * parameters for function, number in functions.items()},
        written=distinct_bytes(call.tensors(*written, *unscaled)),
    )


@formula("_fused_adam", "_fused_adamw", cls=OpClass.OPTIMIZER)
def adam(call: Call) -> Work:
    """Decay 1, first moment 3, second moment 4, root and division 3, update 2."""
    amsgrad = ("max_exp_avg_sqs",) if call["amsgrad"] else ()
    written = ("self", "exp_avgs", "exp_avg_sqs", *amsgrad)
    return fused(call, written, 13, {"fma": 6, "sqrt": 1, "div": 1})


@formula("_fused_sgd", cls=OpClass.OPTIMIZER)
def sgd(call: Call) -> Work:
    """Momentum 2, update 2. Without momentum the buffer list is empty."""
    passes = 2 if call["momentum_buffer_list"] else 1
    return fused(call, ("self", "momentum_buffer_list"), 2 * passes, {"fma": passes})


@formula("_fused_adagrad", cls=OpClass.OPTIMIZER)
def adagrad(call: Call) -> Work:
    return fused(call, ("self", "state_sums"), 5, {"fma": 2, "sqrt": 1, "div": 1})
