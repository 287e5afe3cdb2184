"""Which formula counts which op. Adding one is a decorated function in a file of `formulas/`.

A library with ops of its own registers theirs the same way:

    @gobrrr.formula("mylib::swiglu", cls="elementwise")
    def swiglu(call):
        return counted(call, vector_flops=..., vector={"exp": ..., "fma": ...})
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Counts, Work

Formula: TypeAlias = Callable[[Call], Work]


@dataclass(frozen=True, slots=True)
class Rule:
    cls: OpClass
    formula: Formula


_rules: dict[str, Rule] = {}


def formula(*names: str, cls: OpClass | str) -> Callable[[Formula], Formula]:
    """Registers the decorated function for ops of these names, in place or not, whatever the overload.

    A user's formula replaces ours, whichever comes first, and an earlier one of their own.
    """

    def register(function: Formula) -> Formula:
        for name in names:
            key, rule = canonical(name), Rule(OpClass(cls), function)
            if function.__module__.startswith("gobrrr."):
                _rules.setdefault(key, rule)
            else:
                _rules[key] = rule
        return function

    return register


def rule_for(name: str) -> Rule | None:
    """The rule of a dispatched name such as `aten::add_.Tensor`; the formulas load on the first question."""
    import gobrrr.work.formulas  # noqa: F401 (its modules register themselves)

    return _rules.get(canonical(name))


def is_extended() -> bool:
    """Whether somebody has registered formulas of their own."""
    return any(not rule.formula.__module__.startswith("gobrrr.") for rule in _rules.values())


@lru_cache(maxsize=1 << 12)
def canonical(name: str) -> str:
    """`aten::add_.Tensor` and `add` are one op: overload and in-place ending dropped, `aten` implied."""
    bare = name.partition(".")[0].removeprefix("aten::")
    return bare if bare.endswith("__") else bare.removesuffix("_")


def counted(
    call: Call,
    *,
    matrix: Counts | None = None,
    flops_dense: float = 0,
    vector_flops: float = 0,
    vector: Counts | None = None,
    read: float | None = None,
    written: float | None = None,
) -> Work:
    """Work of a call: what the formula says, and by default every input read once, every output written once."""
    return Work(
        matrix=_nonzero(matrix or {}),
        flops_dense=flops_dense,
        vector_flops=vector_flops,
        vector={arithmetic_type(call): counts} if (counts := _nonzero(vector or {})) else {},
        bytes_read=distinct_bytes(call.tensors()) if read is None else read,
        bytes_written=distinct_bytes(call.outputs) if written is None else written,
    )


def arithmetic_type(call: Call) -> str:
    """What the vector units compute in: fp64 where a double takes part, else fp32, for half types too."""
    wide = {"fp64", "complex128"}
    return "fp64" if any(tensor.dtype in wide for tensor in (*call.tensors(), *call.outputs)) else "fp32"


def _nonzero(counts: Counts) -> Mapping[str, float]:
    return {key: number for key, number in counts.items() if number}
