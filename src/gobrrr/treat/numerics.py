"""Whether numbers are still right: each tensor beside the same in eager mode and beside a more exact reference.

Eager is no measure of truth: in bf16 it is often the worse of the two. So a tensor passes if it is as near to a
reference in fp64 as eager is, up to a small factor. That is PyTorch's own rule for its compilers, and the factors are
theirs: chance weighs more in tensors of few elements.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gobrrr.treat.treatment import Numerics

if TYPE_CHECKING:
    import torch

FACTORS = ((10, 10.0), (500, 8.0))
"""Of eager's own error, by number of elements up to which."""
FACTOR, FACTOR_HALF = 2.0, 3.0
"""And beyond: for fp32 and wider, and for types of two bytes."""

SLACK = 1e-5
"""Of the tensor's own size: an error nobody needs to explain in fp32, where eager happens to be exact."""

EPSILONS = {"float64": 2**-52, "float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}
"""Of a type: what rounding one number costs at most, relative to it."""

ALLOWED = {"tf32": 5e-3, "bf16": 5e-2, "fp16": 2e-2, "fp8": 0.1, "int8": 0.1}
"""Relative error that who allows a type has allowed: some ten times what rounding once costs."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor after a step: some of its elements, in fp64, and the size of all."""

    values: "torch.Tensor"
    norm: float
    dtype: str
    exact: bool
    """Integers and truth values: equal or wrong."""


@dataclass(frozen=True, slots=True)
class Check:
    cls: str
    worst_error: float | None
    """Relative to the tensor's own size; of the reference where there is one, else of eager."""
    passed: bool
    worst: str | None = None
    """Which tensor it is."""
    reason: str | None = None
    """Why it did not pass."""
    weak: bool = False
    """Judged by statistics or without a reference."""


Observation = Mapping[str, Seen]


def check(
    eager: Observation, candidate: Observation, reference: Observation | None, cls: Numerics, allowed: str | None
) -> Check:
    """All tensors that eager shows, the worst named."""
    worst, where, wrong = 0.0, None, None
    for name, base in eager.items():
        error, reason = _judged(base, candidate.get(name), None if reference is None else reference.get(name), allowed)
        if reason is not None and wrong is None:
            wrong = f"{name}: {reason}"
        if error is not None and error >= worst:
            worst, where = error, name
    return Check(cls.value, worst, wrong is None, where, wrong, weak=reference is None)


def _judged(base: Seen, seen: Seen | None, truth: Seen | None, allowed: str | None) -> tuple[float | None, str | None]:
    """The relative error, and what is wrong with it."""
    import torch

    if seen is None or seen.values.shape != base.values.shape:
        return None, "is missing or has another shape"
    if bool((torch.isfinite(base.values) & ~torch.isfinite(seen.values)).any()):
        return None, "is not finite"
    if base.exact:
        return None, None if torch.equal(base.values, seen.values) else "other integers"
    size = _rms((base if truth is None else truth).values)
    errors = list(_errors(base, seen, truth))
    own, eagers = errors[0], errors[1] if truth is not None else 0.0
    limit = _limit(base, size, eagers, allowed)
    relative = own / size if size else own
    if own > limit:
        return relative, f"off by {relative:.1e} of its size, eager by {eagers / size if size else eagers:.1e}"
    if not _alike(base.norm, seen.norm, allowed, base.dtype):
        return relative, f"of size {seen.norm:.6g}, eager {base.norm:.6g}"
    return relative, None


def _errors(base: Seen, seen: Seen, truth: Seen | None) -> Iterator[float]:
    if truth is None:
        yield _rms(seen.values - base.values)
    else:
        yield _rms(seen.values - truth.values)
        yield _rms(base.values - truth.values)


def _limit(base: Seen, size: float, eagers: float, allowed: str | None) -> float:
    """In the tensor's own unit. Without a reference eager's rounding stands for its error."""
    if allowed is not None:
        return ALLOWED[allowed] * size + SLACK
    rounding = EPSILONS.get(base.dtype, EPSILONS["float32"]) * size
    return factor(base) * max(eagers, rounding) + SLACK * size


def factor(base: Seen) -> float:
    number = base.values.numel()
    for most, times in FACTORS:
        if number <= most:
            return times
    return FACTOR_HALF if base.dtype in ("bfloat16", "float16") else FACTOR


def _alike(one: float, other: float, allowed: str | None, dtype: str) -> bool:
    """Sizes of whole tensors: what the elements that were looked at did not show."""
    if not math.isfinite(one):
        return True
    within = ALLOWED[allowed] if allowed is not None else max(1e-3, 4 * EPSILONS.get(dtype, 0.0))
    return abs(one - other) <= within * max(abs(one), abs(other)) + 1e-12


def _rms(values: "torch.Tensor") -> float:
    finite = values[values.isfinite()]
    return float(finite.square().mean().sqrt()) if finite.numel() else 0.0


def check_distribution(eager: Sequence[Observation], candidate: Sequence[Observation], cls: Numerics) -> Check:
    """Of what is random on purpose: the means of several draws of either lie as near as chance allows."""
    worst, where = 0.0, None
    for name in eager[0]:
        if name.startswith("result"):
            distance = _distance([_mean(one[name]) for one in eager], [_mean(one[name]) for one in candidate])
            if distance >= worst:
                worst, where = distance, name
    wrong = None if worst <= SIGMAS else f"{where}: its mean is {worst:.1f} standard errors from eager's"
    return Check(cls.value, None, wrong is None, where, wrong, weak=True)


SIGMAS = 6.0
"""Standard errors between two means of eight draws each, beyond which it is no chance: once in some ten thousand."""


def _mean(seen: Seen) -> float:
    return float(seen.values.mean()) if seen.values.numel() else 0.0


def _distance(one: list[float], other: list[float]) -> float:
    """Welch's t, less what rounding may have moved."""
    means = [sum(values) / len(values) for values in (one, other)]
    variances = [
        sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in zip((one, other), means, strict=True)
    ]
    apart = max(0.0, abs(means[0] - means[1]) - SLACK * max(map(abs, means)))
    return apart / math.sqrt(sum(variances)) if sum(variances) else math.inf if apart else 0.0
