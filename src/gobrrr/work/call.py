"""A Call: an op's arguments by the names of its schema, with tensors described instead of held."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from gobrrr.work.op import TensorRef


@dataclass(frozen=True, slots=True)
class Call:
    """What a formula reads. Holds no tensor, so a recorded trace can make one as well as a live run."""

    name: str
    """`aten::add_`, without the overload."""
    args: Mapping[str, Any]
    """By schema name, defaults filled in; lists are tuples, tensors are TensorRefs."""
    outputs: tuple[TensorRef, ...]
    """What it returns, and what it changes in place without returning it."""
    write_only: frozenset[str] = frozenset()
    """Arguments that are only written: the `out` of an out= overload."""
    keyword_only: frozenset[str] = frozenset()
    tf32: bool = False
    """Whether this call multiplies fp32 operands as tf32."""

    def __getitem__(self, name: str) -> Any:
        return self.args[name]

    def tensors(self, *names: str) -> tuple[TensorRef, ...]:
        """The tensors in the named arguments, in order, or in all that are read if none is named."""
        chosen = names or tuple(name for name in self.args if name not in self.write_only)
        return tuple(tensor for name in chosen for tensor in _tensors_in(self.args[name]))

    @property
    def in_place(self) -> bool:
        """It changes its first argument instead of making a new tensor."""
        first = next(iter(self.tensors()), None)
        return first is not None and first.storage is not None and first.storage in {t.storage for t in self.outputs}

    @property
    def out(self) -> TensorRef:
        return self.outputs[0]


def _tensors_in(value: Any) -> Iterator[TensorRef]:
    if isinstance(value, TensorRef):
        yield value
    elif isinstance(value, tuple):
        for item in value:
            yield from _tensors_in(item)
