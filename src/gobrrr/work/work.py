"""Work: the FLOPs and bytes that something must do at the least. Frozen and additive."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Counts: TypeAlias = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Work:
    """What the machine cannot avoid doing, in the units of its ceilings. One multiply-add is 2 FLOPs."""

    matrix: Counts = field(default_factory=dict)
    """Needed matrix FLOPs by math mode: a causal attention needs half of its scores."""

    flops_dense: float = 0
    """Matrix FLOPs in the convention of `torch.utils.flop_counter`, where a causal attention counts in full."""

    vector_flops: float = 0
    """Reported vector FLOPs: one per element and function, as the article counts; `cos` is one."""

    vector: Mapping[str, Counts] = field(default_factory=dict)
    """Evaluations by arithmetic type and function, for floors: a machine's table says what a `cos` costs."""

    bytes_read: float = 0
    """Each distinct input element once."""

    bytes_written: float = 0
    """Each output element once."""

    @property
    def matrix_flops(self) -> float:
        return sum(self.matrix.values())

    @property
    def flops(self) -> float:
        """All that is needed, matrix and vector, as reported."""
        return self.matrix_flops + self.vector_flops

    @property
    def bytes(self) -> float:
        return self.bytes_read + self.bytes_written

    @property
    def intensity(self) -> float | None:
        """FLOPs per byte, unknown where no byte moves."""
        return self.flops / self.bytes if self.bytes else None

    def vector_cost(self, costs: Counts) -> dict[str, float]:
        """Multiply-add slots by arithmetic type: each evaluation weighted by what the function costs.

        A function that the table does not hold costs one slot, the least it can, so a floor stays a floor.
        """
        return {
            arithmetic: sum(costs.get(function, 1) * number for function, number in functions.items())
            for arithmetic, functions in self.vector.items()
        }

    def scaled(self, share: float) -> "Work":
        """This share of it, as of one of several kernels that do an op together."""
        return Work(
            matrix={mode: share * flops for mode, flops in self.matrix.items()},
            flops_dense=share * self.flops_dense,
            vector_flops=share * self.vector_flops,
            vector={
                arithmetic: {function: share * number for function, number in functions.items()}
                for arithmetic, functions in self.vector.items()
            },
            bytes_read=share * self.bytes_read,
            bytes_written=share * self.bytes_written,
        )

    def __add__(self, other: "Work") -> "Work":
        return total((self, other))


def total(parts: Iterable[Work]) -> Work:
    """The sum; of nothing, no work."""
    together = list(parts)
    arithmetics = {arithmetic: None for part in together for arithmetic in part.vector}
    return Work(
        matrix=_added(part.matrix for part in together),
        flops_dense=sum(part.flops_dense for part in together),
        vector_flops=sum(part.vector_flops for part in together),
        vector={name: _added(part.vector[name] for part in together if name in part.vector) for name in arithmetics},
        bytes_read=sum(part.bytes_read for part in together),
        bytes_written=sum(part.bytes_written for part in together),
    )


def _added(parts: Iterable[Counts]) -> dict[str, float]:
    sums: dict[str, float] = {}
    for part in parts:
        for key, number in part.items():
            sums[key] = sums.get(key, 0) + number
    return sums
