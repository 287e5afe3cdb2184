"""The same program in another precision: what-ifs on counted ops, without the model."""

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.op import Op, OpClass, TensorRef

WIDE = ("fp32", "tf32")


def cast(ops: Sequence[Op], dtype: str) -> tuple[Op, ...]:
    """All of it in bf16 or fp16; or its products only, in tf32 or in fp8.

    A product in tf32 moves fp32 operands; one in fp8 reads operands of one byte, and what makes them is not counted.
    """
    if dtype == "tf32":
        return tuple(_with_modes(op, ("fp32",), "tf32") for op in ops)
    if dtype == "fp8":
        return tuple(_quantized(op) if op.cls is OpClass.CONTRACTION else op for op in ops)
    return tuple(_halved(op, dtype) for op in ops)


def _halved(op: Op, dtype: str) -> Op:
    """Optimizers keep their state: bf16 training steps fp32 weights."""
    if op.phase == "optimizer":
        return op
    return _narrowed(_with_modes(op, WIDE, dtype), ("fp32",), dtype)


def _quantized(op: Op) -> Op:
    if "attention" in op.name:
        return op
    return _narrowed(_with_modes(op, (*WIDE, "bf16", "fp16"), "fp8"), ("fp32", "bf16", "fp16"), "fp8", inputs_only=True)


def _with_modes(op: Op, modes: Sequence[str], new: str) -> Op:
    if op.work is None or not any(mode in op.work.matrix for mode in modes):
        return op
    matrix = {mode: flops for mode, flops in op.work.matrix.items() if mode not in modes}
    moved = sum(flops for mode, flops in op.work.matrix.items() if mode in modes)
    return replace(op, work=replace(op.work, matrix=matrix | {new: matrix.get(new, 0.0) + moved}))


def _narrowed(op: Op, old: Sequence[str], new: str, *, inputs_only: bool = False) -> Op:
    inputs = _retyped(op.inputs, old, new)
    outputs = op.outputs if inputs_only else _retyped(op.outputs, old, new)
    if op.work is None:
        return replace(op, inputs=inputs, outputs=outputs)
    work = replace(
        op.work,
        bytes_read=op.work.bytes_read * _shrunk(op.inputs, inputs),
        bytes_written=op.work.bytes_written * _shrunk(op.outputs, outputs),
    )
    return replace(op, inputs=inputs, outputs=outputs, work=work)


def _retyped(refs: Sequence[TensorRef], old: Sequence[str], new: str) -> tuple[TensorRef, ...]:
    return tuple(ref._replace(dtype=new) if ref.dtype in old else ref for ref in refs)


def _shrunk(before: Sequence[TensorRef], after: Sequence[TensorRef]) -> float:
    sizes = [sum(ref.numel * ITEM_BYTES.get(ref.dtype, 1.0) for ref in refs) for refs in (before, after)]
    return sizes[1] / sizes[0] if sizes[0] else 1.0
