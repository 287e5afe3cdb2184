"""Matrix products: every output element is a dot product of length K, 2·K FLOPs.

Operands are read once and the product written once. No real kernel does so for all shapes (tiles re-read
operands through the cache), so a measured GEMM may move more, never less.
"""

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.torch_flops import torch_flops
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work

_MODES = {"uint8": "int8", "complex64": "fp32", "complex128": "fp64"}


def math_mode(call: Call, operand: TensorRef) -> str:
    """The way the matrix units multiply this operand: fp32 is tf32 where the flags allow it."""
    if operand.dtype == "fp32" and call.tf32:
        return "tf32"
    return _MODES.get(operand.dtype, operand.dtype)


def product(call: Call, flops: float, operand: TensorRef, *, bias: TensorRef | None = None) -> Work:
    """A product of so many FLOPs; a bias that is really added costs an addition per output element."""
    added = call.out.numel if bias is not None else 0
    unread = {"self", *call.write_only} if bias is None and "beta" in call.args else call.write_only
    read = distinct_bytes(call.tensors(*(name for name in call.args if name not in unread)))
    return counted(
        call,
        matrix={math_mode(call, operand): flops},
        flops_dense=flops,
        vector_flops=added,
        vector={"fma": added},
        read=read,
    )


@formula("mm", "bmm", "_int_mm", cls=OpClass.CONTRACTION)
def matrix_product(call: Call) -> Work:
    """`[B,] M×K` times `[B,] K×N`: 2·B·M·N·K."""
    left = call["self"]
    return product(call, torch_flops(call) or 2 * call.out.numel * left.shape[-1], left)


@formula("addmm", "baddbmm", "_addmm_activation", cls=OpClass.CONTRACTION)
def biased_product(call: Call) -> Work:
    """β·self + α·A·B. With β = 0 the bias is not read; stride-0 biases are read once."""
    left, _ = call.tensors(*(("mat1", "mat2") if "mat1" in call.args else ("batch1", "batch2")))
    bias = call["self"] if call["beta"] != 0 else None
    return product(call, torch_flops(call) or 2 * call.out.numel * left.shape[-1], left, bias=bias)


@formula("addbmm", cls=OpClass.CONTRACTION)
def summed_product(call: Call) -> Work:
    """β·self + α·Σ_b A_b·B_b: the batch is one more dimension to sum over."""
    batch, _, inner = call["batch1"].shape
    bias = call["self"] if call["beta"] != 0 else None
    return product(call, 2 * call.out.numel * inner * batch, call["batch1"], bias=bias)


@formula("mv", "dot", "vdot", cls=OpClass.CONTRACTION)
def vector_product(call: Call) -> Work:
    """A matrix or a vector times a vector: 2 FLOPs per element of the first. torch's counter leaves it out."""
    left = call["self"]
    return product(call, 2 * left.numel, left)


@formula("addmv", cls=OpClass.CONTRACTION)
def biased_vector_product(call: Call) -> Work:
    bias = call["self"] if call["beta"] != 0 else None
    return product(call, 2 * call["mat"].numel, call["mat"], bias=bias)


@formula("_scaled_mm", "_scaled_mm_v2", cls=OpClass.CONTRACTION)
def scaled_product(call: Call) -> Work:
    """An fp8 product with scales per tensor or row. The scales are multiplied once per output element."""
    flops = torch_flops(call) or 2 * call.out.numel * call["self"].shape[-1]
    return product(call, flops, call["self"], bias=call["bias"])


@formula("_grouped_mm", "_scaled_grouped_mm", "_scaled_grouped_mm_v2", cls=OpClass.CONTRACTION)
def grouped_product(call: Call) -> Work:
    """Products of several groups in one kernel, as a mixture of experts needs them.

    `offs` splits a dimension that the groups share: the rows of A (tokens by expert), the columns of B, or, in
    the backward pass, the inner one. Every element of A meets every column of *its* group only, so
    2·M·K·N over the whole of A when B has a group dimension (3-D), and 2·M·N·K_total when both are 2-D.
    """
    left, right = call.tensors(*(("self", "mat2") if "mat2" in call.args else ("self", "mat_b")))
    if len(left.shape) == 3 and len(right.shape) == 2:
        rows_per_group = left.shape[1]
        return product(call, 2 * rows_per_group * right.numel, left)
    columns = right.shape[-1]
    return product(call, 2 * left.numel * columns, left, bias=call["bias"])


@formula("_weight_int8pack_mm", "_weight_int4pack_mm", "_weight_int4pack_mm_for_cpu", cls=OpClass.CONTRACTION)
def packed_weight_product(call: Call) -> Work:
    """Weights of fewer bits are widened on the way in and multiplied in the activation's type."""
    left = call["self"]
    return product(call, 2 * call.out.numel * left.shape[-1], left)


@formula("addr", cls=OpClass.ELEMENTWISE)
def outer_product(call: Call) -> Work:
    """β·self + α·u·vᵀ: a multiply-add per element, with nothing to sum over."""
    return counted(call, vector_flops=2 * call.out.numel, vector={"fma": call.out.numel})
