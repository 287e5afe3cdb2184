"""Recurrent layers in one kernel: LSTM, GRU and plain.

Every weight matrix, input-to-hidden and hidden-to-hidden, multiplies one vector per time step and sequence:
2 · steps · batch · numel(weight), with the number of gates in the weight's shape. Backward costs it twice, for
the gradients of inputs and of weights. torch's counter leaves these ops out. Weights count once: a layer that
keeps them on the chip reads them once, whatever the number of steps.
"""

from math import prod

from gobrrr.work.call import Call
from gobrrr.work.formulas.matmul import math_mode
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work

_WEIGHTS = ("weight", "weight0", "weight1", "weight2", "weight3", "weight4")


def recurrent(call: Call, passes: int) -> Work:
    sequence: TensorRef = call["input"]
    weights = call.tensors(*(name for name in _WEIGHTS if name in call.args))
    vectors = prod(sequence.shape[:-1])
    multiplied = sum(weight.numel for weight in weights if len(weight.shape) == 2)
    flops = 2 * passes * vectors * multiplied
    rows = sum(weight.shape[0] for weight in weights if len(weight.shape) == 2)
    gates = passes * vectors * rows // 2  # a gate adds an input's and a hidden state's product before its function
    return counted(
        call,
        matrix={math_mode(call, sequence): flops},
        flops_dense=flops,
        vector_flops=gates,
        vector={"exp": gates, "div": gates, "fma": gates},
    )


@formula("_cudnn_rnn", "miopen_rnn", "mkldnn_rnn_layer", cls=OpClass.CONTRACTION)
def rnn(call: Call) -> Work:
    return recurrent(call, passes=1)


@formula("_cudnn_rnn_backward", "miopen_rnn_backward", "mkldnn_rnn_layer_backward", cls=OpClass.CONTRACTION)
def rnn_backward(call: Call) -> Work:
    return recurrent(call, passes=2)


@formula("_cudnn_rnn_flatten_weight", cls=OpClass.MOVEMENT)
def flatten_weight(call: Call) -> Work:
    return counted(call)


@formula(
    "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell",
    "_thnn_fused_lstm_cell_backward_impl",
    "_thnn_fused_gru_cell_backward",
    cls=OpClass.ELEMENTWISE,
)
def cell(call: Call) -> Work:
    """Gates already multiplied: per gate element a sigmoid or tanh and a multiply-add."""
    gates = max(tensor.numel for tensor in (*call.tensors(), *call.outputs))
    return counted(call, vector_flops=3 * gates, vector={"exp": gates, "div": gates, "fma": 2 * gates})
