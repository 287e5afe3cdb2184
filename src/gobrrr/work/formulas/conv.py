"""Convolutions as implicit matrix products."""

from math import prod

from gobrrr.work.call import Call
from gobrrr.work.formulas.matmul import math_mode
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.torch_flops import torch_flops
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


def direct_flops(image: TensorRef, weight: TensorRef, result: TensorRef, *, transposed: bool) -> int:
    """2·N·K·P·Q·(C/g)·R·S of a forward convolution, which is also what each half of its backward costs.

    The weight is stored as K × C/g × R × S, and each of its elements meets every output position of its own
    output channel once: so 2 · numel(weight) · N · (positions). Positions are those of the output, or of the
    input for a transposed convolution, which scatters where the other gathers. Groups are in the weight's shape.
    """
    positions = image if transposed else result
    return 2 * weight.numel * positions.shape[0] * prod(positions.shape[2:])


def _weight(call: Call) -> TensorRef:
    (weight,) = call.tensors("weight")
    return weight


@formula(
    "convolution",
    "_convolution",
    "cudnn_convolution",
    "convolution_overrideable",
    "_slow_conv2d_forward",
    "miopen_convolution",
    "mkldnn_convolution",
    cls=OpClass.CONTRACTION,
)
def convolution(call: Call) -> Work:
    image = call["self" if "self" in call.args else "input"]
    transposed = bool(call.args.get("transposed"))
    flops = torch_flops(call) or direct_flops(image, _weight(call), call.out, transposed=transposed)
    added = call.out.numel if call.args.get("bias") is not None else 0
    return counted(
        call,
        matrix={math_mode(call, image): flops},
        flops_dense=flops,
        vector_flops=added,
        vector={"fma": added},
    )


@formula("convolution_backward", cls=OpClass.CONTRACTION)
def convolution_backward(call: Call) -> Work:
    """Gradients by image and by weight cost a forward each, the bias's one addition per output gradient.

    torch's formula forgets that a weight gradient of a grouped convolution is grouped too and counts it
    `groups` times, so ours stands alone here; without groups the two agree. The image is read only for the
    weight's gradient and the weight only for the image's.
    """
    wants_image, wants_weight, wants_bias = call["output_mask"]
    grad, image, weight = call["grad_output"], call["input"], call["weight"]
    one = direct_flops(image, weight, grad, transposed=call["transposed"])
    flops = one * (bool(wants_image) + bool(wants_weight))
    added = grad.numel if wants_bias else 0
    read = [grad, *([weight] if wants_image else []), *([image] if wants_weight else [])]
    return counted(
        call,
        matrix={math_mode(call, image): flops},
        flops_dense=flops,
        vector_flops=added,
        vector={"fma": added},
        read=distinct_bytes(read),
    )
