"""The same program with its unfused attention in one kernel: a what-if on counted ops, without the model."""

from collections.abc import Sequence
from dataclasses import replace

from gobrrr.diagnose.flow import data_flow
from gobrrr.diagnose.grouping import Attention, Grouping, grouping
from gobrrr.errors import UsageError
from gobrrr.work.op import Op, TensorRef
from gobrrr.work.work import Work

FORWARD = "aten::_scaled_dot_product_flash_attention"
BACKWARD = f"{FORWARD}_backward"


def flashed(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Whatever touches scores is one kernel, forward and backward, where the last of them was; views of them go."""
    found = grouping(ops, data_flow(ops))
    if not found.attentions:
        raise UsageError("'flash' changes nothing: the step has no attention of two products and a softmax")
    kept: list[Op | None] = list(ops)
    for attention in found.attentions:
        for numbers, fused in _fused(ops, found, attention):
            for number in numbers:
                kept[number] = None
            kept[numbers[-1]] = fused
    sizes = {ops[attention.scores].outputs[0].numel for attention in found.attentions}
    return tuple(op for op in kept if op and (op.launches or not any(_touches(op, size) for size in sizes)))


def _fused(ops: Sequence[Op], found: Grouping, attention: Attention) -> list[tuple[list[int], Op]]:
    scores = ops[attention.scores].outputs[0].numel

    def touching(group: int | None) -> list[int]:
        return [n for n, op in enumerate(ops) if found.group[n] == group and _touches(op, scores)]

    before = touching(found.group[attention.output])
    forward = _forward(ops[attention.scores], ops[attention.output])
    after = touching(attention.backward) if attention.backward is not None else []
    later = [(after, _backward(forward, [ops[n] for n in after], scores))] if after else []
    return [(before, forward), *later]


def _touches(op: Op, scores: int) -> bool:
    return any(ref.numel == scores for ref in (*op.inputs, *op.outputs))


def _forward(product: Op, output: Op) -> Op:
    """Queries times keys, and what came of it times values."""
    (query, transposed), value = product.inputs[-2:], output.inputs[-1]
    inputs = tuple(_with_heads(ref) for ref in (query, _transposed(transposed), value))
    work = (product.work or Work()) + (output.work or Work())
    result = _with_heads(output.outputs[0])
    return replace(output, name=FORWARD, inputs=inputs, outputs=(result,), work=_moving(work, inputs, (result,)))


def _backward(forward: Op, members: Sequence[Op], scores: int) -> Op:
    """Its products are there already, but for the scores that it computes again."""
    made = tuple({ref for op in members for ref in op.outputs if ref.numel != scores})
    read = (*forward.outputs, *forward.inputs, *{ref for op in members for ref in op.inputs if ref.numel != scores})
    again = (forward.work or Work()).scaled(0.5)
    work = sum((op.work or Work() for op in members), again)
    return replace(members[-1], name=BACKWARD, inputs=read, outputs=made, work=_moving(work, forward.inputs * 2, made))


def _moving(work: Work, read: Sequence[TensorRef], written: Sequence[TensorRef]) -> Work:
    bytes_read, bytes_written = (sum(ref.nbytes for ref in refs) for refs in (read, written))
    return replace(work, bytes_read=bytes_read, bytes_written=bytes_written)


def _transposed(ref: TensorRef) -> TensorRef:
    swapped = (*range(len(ref.shape) - 2), -1, -2)
    return ref._replace(shape=tuple(ref.shape[d] for d in swapped), stride=tuple(ref.stride[d] for d in swapped))


def _with_heads(ref: TensorRef) -> TensorRef:
    """A batch of products has batch and heads in one dimension."""
    if len(ref.shape) != 3:
        return ref
    return ref._replace(shape=(1, *ref.shape), stride=(ref.shape[0] * ref.stride[0], *ref.stride))
