"""Pointwise ops: so much per output element, inputs read once, outputs written once.

Reported FLOPs follow the article: a named function is one, an arithmetic expression one per operation. Floors
use evaluations: `silu` is an exponential, a division and two multiply-adds, and the machine's table prices each.
"""

from collections.abc import Mapping
from typing import NamedTuple

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


class PerElement(NamedTuple):
    flops: float
    functions: Mapping[str, float]


CHEAP = PerElement(1, {"fma": 1})
DIVISION = PerElement(1, {"div": 1})
EXPONENTIAL = PerElement(1, {"exp": 1})
LOGARITHM = PerElement(1, {"log": 1})

_CHEAP_NAMES = (
    "add sub rsub mul neg abs sign sgn square maximum minimum fmax fmin clamp clamp_min clamp_max relu relu6 threshold "
    "threshold_backward eq ne lt le gt ge logical_and logical_or logical_xor logical_not bitwise_and bitwise_or "
    "bitwise_xor bitwise_not bitwise_left_shift bitwise_right_shift __and__ __or__ __xor__ __lshift__ __rshift__ "
    "where masked_fill floor ceil round trunc frac signbit isnan isinf isfinite isposinf isneginf heaviside copysign "
    "nan_to_num hardtanh hardtanh_backward hardsigmoid hardsigmoid_backward hardswish hardswish_backward leaky_relu "
    "leaky_relu_backward _prelu_kernel _prelu_kernel_backward softshrink softshrink_backward hardshrink "
    "hardshrink_backward absolute positive real imag conj_physical tril triu isin _conj_physical "
    "native_dropout_backward"
)

PER_ELEMENT: dict[str, PerElement] = {
    **dict.fromkeys(_CHEAP_NAMES.split(), CHEAP),
    **dict.fromkeys("div true_divide reciprocal remainder fmod floor_divide".split(), DIVISION),
    **dict.fromkeys("exp exp2 expm1 frexp ldexp".split(), EXPONENTIAL),
    **dict.fromkeys("log log2 log10 log1p logit lgamma digamma polygamma".split(), LOGARITHM),
    **{name: PerElement(1, {name: 1}) for name in ("sin", "cos", "tan", "tanh", "sqrt", "rsqrt")},
    **dict.fromkeys("asin acos atan atan2 arctan2 sinc hypot".split(), PerElement(1, {"tan": 1})),
    **dict.fromkeys("erf erfc erfinv special_erfcx special_ndtri".split(), PerElement(1, {"erf": 1})),
    **dict.fromkeys("sinh cosh asinh acosh atanh".split(), PerElement(1, {"exp": 1, "div": 1})),
    "sigmoid": PerElement(1, {"exp": 1, "div": 1, "fma": 1}),
    "silu": PerElement(1, {"exp": 1, "div": 1, "fma": 2}),
    "softplus": PerElement(1, {"exp": 1, "log": 1}),
    "log_sigmoid_forward": PerElement(1, {"exp": 1, "log": 1}),
    "mish": PerElement(1, {"exp": 1, "log": 1, "tanh": 1}),
    "elu": PerElement(1, {"exp": 1, "fma": 2}),
    "glu": PerElement(2, {"exp": 1, "div": 1, "fma": 2}),
    "logaddexp": PerElement(1, {"exp": 1, "log": 1, "fma": 2}),
    "logaddexp2": PerElement(1, {"exp": 1, "log": 1, "fma": 2}),
    "xlogy": PerElement(2, {"log": 1, "fma": 1}),
    # σ' = σ(1 − σ) and tanh' = 1 − tanh² need the output alone, no exponential.
    "sigmoid_backward": PerElement(3, {"fma": 3}),
    "tanh_backward": PerElement(3, {"fma": 2}),
    "silu_backward": PerElement(1, {"exp": 1, "div": 1, "fma": 4}),
    "elu_backward": PerElement(1, {"exp": 1, "fma": 2}),
    "softplus_backward": PerElement(1, {"exp": 1, "div": 1, "fma": 1}),
    "log_sigmoid_backward": PerElement(1, {"exp": 1, "div": 1, "fma": 1}),
    "mish_backward": PerElement(1, {"exp": 2, "log": 1, "tanh": 1}),
    "glu_backward": PerElement(2, {"exp": 1, "div": 1, "fma": 3}),
    "lerp": PerElement(3, {"fma": 2}),
    "addcmul": PerElement(3, {"fma": 2}),
    "addcdiv": PerElement(3, {"fma": 1, "div": 1}),
    "complex": PerElement(0, {}),
    "polar": PerElement(2, {"sin": 1, "cos": 1, "fma": 2}),
    "angle": PerElement(1, {"tan": 1}),
}

# One complex product is four real ones and two additions; everything else is done per component.
_COMPLEX_FLOPS = {"mul": 6, "div": 11}


def pointwise(call: Call, per_element: PerElement) -> Work:
    elements = sum(output.numel for output in call.outputs)
    return counted(
        call,
        vector_flops=elements * per_element.flops,
        vector={function: elements * number for function, number in per_element.functions.items()},
    )


def _complex_adjusted(call: Call, name: str, per_element: PerElement) -> PerElement:
    if not call.out.dtype.startswith("complex"):
        return per_element
    flops = _COMPLEX_FLOPS.get(name, 2 * per_element.flops)
    return PerElement(flops, {function: number * 2 for function, number in per_element.functions.items()})


def _register(name: str, per_element: PerElement) -> None:
    @formula(name, cls=OpClass.ELEMENTWISE)
    def one(call: Call) -> Work:
        return pointwise(call, _complex_adjusted(call, name, per_element))

    @formula(f"_foreach_{name}", cls=OpClass.ELEMENTWISE)
    def many(call: Call) -> Work:
        return pointwise(call, per_element)


for _name, _per_element in PER_ELEMENT.items():
    _register(_name, _per_element)


@formula("pow", "float_power", "_foreach_pow", cls=OpClass.ELEMENTWISE)
def power(call: Call) -> Work:
    """A small whole exponent is multiplications; any other costs a logarithm and an exponential."""
    exponent = call.args.get("exponent")
    if exponent in (2, 3):
        return pointwise(call, PerElement(1, {"fma": exponent - 1}))
    if exponent == 0.5:
        return pointwise(call, PER_ELEMENT["sqrt"])
    return pointwise(call, PerElement(1, {"pow": 1}))


@formula("gelu", cls=OpClass.ELEMENTWISE)
def gelu(call: Call) -> Work:
    """x·Φ(x): by the error function, or by the tanh that approximates it."""
    if call["approximate"] == "tanh":
        return pointwise(call, PerElement(1, {"tanh": 1, "fma": 5}))
    return pointwise(call, PerElement(1, {"erf": 1, "fma": 3}))


@formula("gelu_backward", cls=OpClass.ELEMENTWISE)
def gelu_backward(call: Call) -> Work:
    """Φ(x) + x·φ(x): the normal density costs an exponential more."""
    if call["approximate"] == "tanh":
        return pointwise(call, PerElement(1, {"tanh": 1, "fma": 10}))
    return pointwise(call, PerElement(1, {"erf": 1, "exp": 1, "fma": 5}))


@formula("_amp_foreach_non_finite_check_and_unscale", cls=OpClass.ELEMENTWISE)
def unscale(call: Call) -> Work:
    """A gradient scaler's pass: each gradient tested and multiplied in place."""
    elements = sum(tensor.numel for tensor in call.tensors("self"))
    return counted(call, vector_flops=2 * elements, vector={"fma": 2 * elements})


@formula("_amp_update_scale", cls=OpClass.ELEMENTWISE)
def update_scale(call: Call) -> Work:
    return counted(call, vector_flops=1, vector={"fma": 1})
