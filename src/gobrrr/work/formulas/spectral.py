"""Fourier transforms."""

from math import log2, prod

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.registry import counted, formula
from gobrrr.work.work import Work


@formula("_fft_r2c", "_fft_c2r", "_fft_c2c", cls=OpClass.OTHER)
def fft(call: Call) -> Work:
    """5·n·log₂(n) per complex transform of length n, half of it when one side is real."""
    signal = max((call["self"], call.out), key=lambda tensor: tensor.numel)
    length = prod(signal.shape[dim] for dim in call["dim"])
    share = 1.0 if call.name.endswith("c2c") else 0.5
    flops = share * 5 * signal.numel * max(1.0, log2(max(1, length)))
    return counted(call, vector_flops=flops, vector={"fma": flops / 2})
