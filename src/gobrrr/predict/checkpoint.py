"""The same step with each layer's activations computed again in the backward pass instead of kept."""

import re
from collections.abc import Sequence
from dataclasses import replace

from gobrrr.diagnose.flow import Value, data_flow
from gobrrr.errors import UsageError
from gobrrr.work.op import Op, Phase
from gobrrr.work.program import Program

_LAYER = re.compile(r"(.*?\.\d+)(?:\.|$)")


def layer(op: Op) -> str | None:
    """The outermost numbered module around an op: `Bert.encoder.layer.0`."""
    found = _LAYER.match(op.module)
    return found[1] if found else None


def checkpointed(program: Program) -> Program:
    """Each layer's forward once more before its backward begins; of its activations only what enters it is kept."""
    ops = program.ops
    forward = [op for op in ops if op.phase is Phase.FORWARD and layer(op)]
    if not forward or not any(op.phase is Phase.BACKWARD for op in ops):
        raise UsageError("'checkpoint' needs a step that trains a model of numbered layers: there is nothing to drop")
    peak = program.memory.peak_bytes - int(dropped_bytes(ops))
    return Program(tuple(_with_layers_again(ops, forward)), replace(program.memory, peak_bytes=peak))


def _with_layers_again(ops: Sequence[Op], forward: Sequence[Op]) -> list[Op]:
    found, begun = [], set()
    for op in ops:
        name = layer(op)
        if op.phase is Phase.BACKWARD and name and name not in begun:
            begun.add(name)
            again = (one for one in forward if layer(one) == name)
            found += [replace(one, phase=Phase.BACKWARD, recomputed=True) for one in again]
        found.append(op)
    return found


def dropped_bytes(ops: Sequence[Op]) -> float:
    """What layers keep for the backward pass, but for the largest, whose own is there when it is computed again."""
    kept: dict[str, float] = {}
    for value in _saved(ops):
        name = layer(ops[value.maker])
        if name is not None and not _leaves(value, name, ops):
            kept[name] = kept.get(name, 0.0) + value.access.nbytes
    return sum(kept.values()) - max(kept.values(), default=0.0)


def _saved(ops: Sequence[Op]) -> list[Value]:
    made = (value for some in data_flow(ops).makes for value in some if ops[value.maker].phase is Phase.FORWARD)
    return [value for value in made if any(ops[reader].phase is Phase.BACKWARD for reader in value.readers)]


def _leaves(value: Value, name: str, ops: Sequence[Op]) -> bool:
    """Another layer, or the head, reads it in the forward pass: it is what enters there."""
    return any(ops[reader].phase is Phase.FORWARD and layer(ops[reader]) != name for reader in value.readers)
