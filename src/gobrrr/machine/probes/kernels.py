"""The one Triton kernel of the probes: chains of one function on values that never leave the registers.

Imported only where Triton is known to be there.
"""
# mypy: disable-error-code="import-not-found, import-untyped, untyped-decorator, no-untyped-call, no-untyped-def"
# ruff: noqa: ANN001, ANN201, ANN202 (Triton compiles annotations too, and knows only its own)

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def _applied(function: tl.constexpr, x, y):
    """The function as eager torch compiles it: the accurate library version, division and root rounded."""
    if function == "exp":
        result = libdevice.exp(x)
    elif function == "log":
        result = libdevice.log(x)
    elif function == "sin":
        result = libdevice.sin(x)
    elif function == "cos":
        result = libdevice.cos(x)
    elif function == "tan":
        result = libdevice.tan(x)
    elif function == "tanh":
        result = libdevice.tanh(x)
    elif function == "erf":
        result = libdevice.erf(x)
    elif function == "sqrt":
        result = tl.sqrt_rn(x)
    elif function == "rsqrt":
        result = libdevice.rsqrt(x)
    elif function == "div":
        result = tl.div_rn(y, x)
    else:
        tl.static_assert(function == "pow")
        result = libdevice.pow(x, y)
    return result


@triton.jit(do_not_specialize=["rounds"])
def chains(
    values,
    results,
    rounds,
    factor,
    function: tl.constexpr,
    dtype: tl.constexpr,
    block: tl.constexpr,
    unroll: tl.constexpr,
):
    """Each element goes `rounds · unroll` times through x ← f(x)·factor + x₀ (for "fma": x ← x·factor + y).

    `factor` comes in at run time, so no compiler can fold the chain. With 1e-3 the argument stays beside its
    random start, in the range of all functions; with -1 the plain multiply-add swings between x₀ and y - x₀
    forever, so that its bits keep flipping as those of real data do.
    """
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    start = tl.load(values + offsets).to(dtype)
    y = tl.load(values + (offsets ^ 1)).to(dtype)
    scale = (tl.full([block], 1, tl.float32) * factor).to(dtype)
    x = start
    for turn in range(rounds):
        for step in tl.static_range(unroll):
            if function == "fma":
                x = tl.fma(x, scale, y)
            elif function == "random":
                x = tl.fma(tl.rand(0, offsets + (turn * unroll + step)), scale, x)
            else:
                x = tl.fma(_applied(function, x, y), scale, start)
    tl.store(results + offsets, x.to(tl.float32))
