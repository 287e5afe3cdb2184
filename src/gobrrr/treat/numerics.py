"""Whether numbers are still right: each tensor beside the same in eager mode and beside a more exact reference.

Eager is no measure of truth: in bf16 it is often the worse of the two. So a tensor passes if it is as near to a
reference in fp64 as eager is, up to a small factor. That is PyTorch's own rule for its compilers, and the factors are
theirs: chance weighs more in tensors of few elements.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import TYPE_CHECKING

from gobrrr.treat.treatment import Numerics

if TYPE_CHECKING:
    import torch

FACTORS = ((10, 10.0), (500, 8.0))
"""Of eager's own error, by number of elements up to which."""
FACTOR, FACTOR_HALF = 2.0, 3.0
"""And beyond: for fp32 and wider, and for what is of two bytes or was computed so, as autocast does."""

TINY = 1e-30

TIES = 1e-3
"""Of integers that a step gives, as the largest of many numbers has them, those that rounding may turn."""

SLACK, MOST_SLACK = 2e-5, 1e-4
"""Of what is made, or of a change: an error nobody needs to explain in fp32, where eager happens to be exact. One less
a decay of 0.999, as fused optimizers compute it on a GPU, is off by 1.3e-5. TF32 is off by several times the most.
"""
DOUBLE = 1e-5
"""Of a slack, what is left of it for what was computed in fp64: room for another order of sums, and none for fp32."""

FRAGILE = 120
"""Times what eager is usually off by, up to the most. Compiled for a CPU, gradients below a batch normalization are off
by half of that, where eager's are by a millionth; one GELU for another by as much, where eager's are by a fifth of it.
"""

AGREE = 1e-5
"""Between what should be the same, in fp64 as a rule."""

NOISE = 0.25
"""Of a tensor's size: where eager is off by more, rounding is all there is to see."""

KNOWN, LOST, AGAINST = 0.5, 0.5, -0.25
"""Where eager's change goes the right way, by its cosine, another's is lost if it is shorter than this share of the
right one, and goes against it from this cosine on.
"""
CHANGED, CHANGED_BY_CHANCE = 0.9, 1.1
"""Of a change, what a type that was allowed may move it by: less than would double it; and where nobody knows which
way, as AdamW makes a whole step of what is zero but for rounding, one more.
"""
MANY = 100
"""Elements from which on a direction is no chance."""

EPSILONS = {"float64": 2**-52, "float32": 2**-23, "bfloat16": 2**-8, "float16": 2**-11}
"""Of a type: what rounding one number costs at most, relative to it."""

UNSEEN = 2
"""Times the size of what was looked at, beyond which the whole is of another kind."""

ALLOWED = {"tf32": 5e-3, "bf16": 5e-2, "fp16": 2e-2, "fp8": 0.1, "int8": 0.1}
"""Relative error that who allows a type has allowed: some ten times what rounding once costs."""
GRADIENTS = 4
"""Times that, for what has come back through all layers: with batch normalization 7 % in bf16 after two."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A tensor after a step: some of its elements, in fp64, and the size of all."""

    values: "torch.Tensor"
    norm: float
    """Of integers a sum in which each has its weight."""
    shape: tuple[int, ...]
    dtype: str
    exact: bool
    """Integers and truth values: equal or wrong."""

    @property
    def elements(self) -> int:
        return math.prod(self.shape)

    @property
    def whole_size(self) -> float:
        """The root of its elements' mean square; 0 where they are not finite."""
        return self.norm / math.sqrt(max(1, self.elements)) if math.isfinite(self.norm) else 0.0

    @property
    def epsilon(self) -> float:
        return EPSILONS.get(self.dtype, EPSILONS["float32"])

    def slack(self, allowed: str | None) -> float:
        """What of it may be rounding, or what was allowed."""
        return max(SLACK, self.epsilon, ALLOWED[allowed] if allowed else 0.0) * _rms(self.values)


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
    eager: Observation,
    candidate: Observation,
    reference: Observation | None,
    cls: Numerics,
    allowed: str | None,
    shaken: Sequence[Observation] = (),
    before: Observation | None = None,
    slack: float = SLACK,
) -> Check:
    """All tensors that eager shows, the worst named.

    Shaken is the reference from numbers that differ by rounding: what that alone moves is no mistake. Before is what
    the step changes, as it was then: a change has a size of its own, and the wrong way is wrong however short.
    """
    truth, was = reference or {}, before or {}
    for name, base in eager.items():
        if (wrong := _unlike(base, candidate.get(name), allowed, result=is_result(name))) is not None:
            return Check(cls.value, None, passed=False, worst=name, reason=f"{name}: {wrong}", weak=reference is None)
    errors = {
        name: Error.of(
            base, candidate[name], truth.get(name), [one[name] for one in shaken if name in one], was.get(name)
        )
        for name, base in eager.items()
        if not base.exact
    }
    usual = _usual(errors, slack)
    relative = {name: error.own / max(error.size, usual[name].size, TINY) for name, error in errors.items()}
    worst = max(relative, key=relative.__getitem__, default=None)
    beyond = [name for name, error in errors.items() if error.is_beyond(usual[name], allowed)]
    reason = _off(beyond[0], errors[beyond[0]], usual[beyond[0]], allowed) if beyond else None
    error = None if worst is None else relative[worst]
    return Check(cls.value, error, not beyond, worst, reason, weak=reference is None)


def agree(one: Observation, other: Observation) -> bool:
    """Two observations of what should be the same: what is zero but for rounding is measured by what is usual."""
    found = check(one, other, None, Numerics.SAME, None, slack=AGREE)
    return found.passed or (found.worst_error is not None and found.worst_error <= AGREE)


def _unlike(base: Seen, seen: Seen | None, allowed: str | None, *, result: bool) -> str | None:
    """What is wrong with it whatever its numbers are; and integers have no others."""
    if (wrong := _malformed(base, seen, allowed, result=result)) is not None or seen is None:
        return wrong
    if not base.exact:
        return None
    apart = float((base.values != seen.values).double().mean()) if base.values.numel() else 0.0
    other = apart > TIES if result else apart > 0 or base.norm != seen.norm
    return "other integers" if other else None


def _malformed(base: Seen, seen: Seen | None, allowed: str | None, *, result: bool) -> str | None:
    import torch

    if seen is None or seen.shape != base.shape:
        return "is missing or has another shape"
    if result and allowed in (None, "tf32") and seen.dtype != base.dtype:
        return f"is {seen.dtype} and was {base.dtype}"
    if bool((torch.isfinite(base.values) & ~torch.isfinite(seen.values)).any()) or _becomes_infinite(base, seen):
        return "is not finite"
    return None


def _becomes_infinite(base: Seen, seen: Seen) -> bool:
    """Anywhere: the size of the whole tells."""
    return math.isfinite(base.norm) and not math.isfinite(seen.norm)


def _usual(errors: "Mapping[str, Error]", slack: float) -> "dict[str, Usual]":
    """Of each tensor, what is usual among those of its kind: results, gradients, one moment, parameters."""
    kinds: defaultdict[str, list[Error]] = defaultdict(list)
    for name, error in errors.items():
        kinds[kind_of(name)].append(error)
    shares = [error.share for error in kinds["gradient"] or kinds["result"] if error.size]
    slack = max(slack, min(MOST_SLACK, FRAGILE * median(shares))) if shares else slack
    found = {kind: Usual.of(some, kind, slack) for kind, some in kinds.items() if some}
    gradients = {owner_of(name): error for name, error in errors.items() if kind_of(name) == "gradient"}
    zero = {owner for owner, error in gradients.items() if error.is_noise and error.eagers}
    return {
        name: replace(found[kind_of(name)], is_zero=True) if owner_of(name) in zero else found[kind_of(name)]
        for name in errors
    }


def kind_of(name: str) -> str:
    """`exp_avg of model.weight` is an exp_avg, `result0.logits` a result, `model.weight` a parameter."""
    kind, of, _ = name.partition(" of ")
    if of:
        return kind
    return "result" if is_result(name) else "tensor" if name.startswith("tensor ") else "parameter"


def owner_of(name: str) -> str:
    """`exp_avg of model.weight` and its gradient are of `model.weight`, as is that itself."""
    return name.rpartition(" of ")[2]


def is_result(name: str) -> bool:
    """What a step gave back, and not what it left changed."""
    return name.startswith("result")


@dataclass(frozen=True, slots=True)
class Error:
    """Of one tensor, all root mean squares in its own unit."""

    size: float
    own: float
    eagers: float
    """Of eager; without a reference there is none but rounding."""
    rounding: float
    """Of its own numbers; or, if more, what rounding moves where the step turns on it: a ReLU near zero, a maximum."""
    factor: float
    norms_apart: float
    """By how much the sizes of the whole tensors differ, over the root of their elements' number."""
    whole: float
    """That size."""
    change: float | None
    """What the step does to it; None of what it makes."""
    is_double: bool
    """It is fp64, and not only in the end."""
    is_known: bool
    """Eager does that in the right direction."""
    is_lost: bool
    """It is not done, or the other way."""

    @classmethod
    def of(
        cls, base: Seen, seen: Seen, truth: Seen | None, shaken: Sequence[Seen] = (), before: Seen | None = None
    ) -> "Error":
        right = truth if truth is not None and _is_reference(truth, base) else base
        whole = right.whole_size
        size, eagers = _rms(right.values) or whole, _rms(base.values - right.values)
        alike = [one for one in shaken if one.shape == right.shape]
        moved = max((_rms(one.values - right.values) for one in alike), default=0.0)
        was = before.values if before is not None and before.shape == base.shape else None
        change = None if was is None else _rms(right.values - was)
        is_known = was is not None and _cosine(base.values - was, right.values - was) >= KNOWN
        return cls(
            size=size,
            own=_rms(seen.values - right.values),
            eagers=eagers,
            rounding=max(base.epsilon * size, moved),
            factor=factor(base, max(0.0, eagers - base.epsilon * size), size if change is None else change),
            norms_apart=_norms_apart(seen, right),
            whole=whole,
            change=change,
            is_double=base.dtype == "float64" and right is truth and eagers <= DOUBLE * SLACK * size,
            is_known=is_known,
            is_lost=is_known and was is not None and _is_lost(seen.values - was, right.values - was),
        )

    def limit(self, usual: "Usual", allowed: str | None) -> float:
        """What is zero but for rounding has no size of its own to be measured by: there the usual error counts, and
        elsewhere its share of the size.
        """
        if allowed is not None:
            return max(ALLOWED[allowed] * usual.times * max(self.size, usual.size), self._moved_by_chance(usual))
        others = usual.eagers if self.is_noise else usual.share * self.size
        size = self.size if self.change is None else self.change
        slack = (DOUBLE if self.is_double else 1.0) * usual.slack
        slack *= max(size, usual.measure) if usual.is_zero else size
        return self.factor * max(self.eagers, others, self.rounding) + slack

    @property
    def share(self) -> float:
        """Of its size that eager is off by."""
        return self.eagers / self.size

    @property
    def is_noise(self) -> bool:
        return self.eagers >= NOISE * self.size

    def _moved_by_chance(self, usual: "Usual") -> float:
        if self.change is None:
            return 0.0
        return CHANGED * self.change if self.is_known else CHANGED_BY_CHANCE * max(self.change, usual.change)

    def is_beyond(self, usual: "Usual", allowed: str | None) -> bool:
        """By the elements that were looked at; and by the whole, whose size cannot differ by more than its error."""
        limit = self.limit(usual, allowed)
        is_near = self.norms_apart <= max(limit, self._limit_of_the_rest(usual, allowed))
        return self.is_lost or not (self.own <= limit and is_near)

    def _limit_of_the_rest(self, usual: "Usual", allowed: str | None) -> float:
        """Where what was not looked at is much larger, as likelihoods of the right words among those of all others: by
        its own measure, whatever is usual.
        """
        if self.whole <= UNSEEN * self.size:
            return 0.0
        if allowed is not None:
            return ALLOWED[allowed] * usual.times * self.whole
        own = 0.0 if self.is_noise else max(self.share, self.rounding / self.size)
        slack = (DOUBLE if self.is_double else 1.0) * usual.slack
        return (self.factor * min(NOISE, max(own, usual.share)) + slack) * self.whole


def _norms_apart(seen: Seen, right: Seen) -> float:
    return abs(seen.norm - right.norm) / math.sqrt(max(1, right.elements)) if math.isfinite(right.norm) else 0.0


def _is_reference(truth: Seen, base: Seen) -> bool:
    """Of the same shape, and finite where eager is."""
    return truth.shape == base.shape and not _becomes_infinite(base, truth)


def _is_lost(own: "torch.Tensor", right: "torch.Tensor") -> bool:
    """A change."""
    return _rms(own) < LOST * _rms(right) or (right.numel() >= MANY and _cosine(own, right) < AGAINST)


def _cosine(one: "torch.Tensor", other: "torch.Tensor") -> float:
    """Not a number where there is nothing to compare."""
    sizes = _length(one) * _length(other)
    return float(one.flatten() @ other.flatten()) / sizes if sizes else math.nan


@dataclass(frozen=True, slots=True)
class Usual:
    """Of the tensors of one kind, the median."""

    size: float
    eagers: float
    share: float
    """Eager's error, of the size of each."""
    change: float
    measure: float
    """For what has none of its own: of parameters how they change, of all else its size."""
    times: float
    """What may be off by more than results: gradients."""
    slack: float
    """Of a change, or of what is made."""
    is_zero: bool = False
    """The gradient of what it belongs to is, but for rounding: a bias below a batch normalization."""

    @classmethod
    def of(cls, errors: Sequence[Error], kind: str, slack: float) -> "Usual":
        shares = [error.share for error in errors if error.size]
        size, change = median(error.size for error in errors), median(error.change or 0.0 for error in errors)
        return cls(
            size=size,
            eagers=median(error.eagers for error in errors),
            share=median(shares) if shares else 0.0,
            change=change,
            measure=change if kind == "parameter" else size,
            times=GRADIENTS if kind == "gradient" else 1,
            slack=slack,
        )


def _off(name: str, error: Error, usual: Usual, allowed: str | None) -> str:
    size = max(error.size, TINY)
    worse = max(error.own, error.norms_apart)
    if error.is_lost:
        return f"{name}: the step changes it otherwise, or not at all"
    return (
        f"{name}: off by {worse / size:.1e} of its size, eager by {error.eagers / size:.1e}, "
        f"allowed {error.limit(usual, allowed) / size:.1e}"
    )


def factor(base: Seen, off: float, size: float) -> float:
    """Where eager is off by so much, besides rounding what it gives, of something of that size."""
    number = base.values.numel()
    for most, times in FACTORS:
        if number <= most:
            return times
    is_half = base.dtype in ("bfloat16", "float16") or off > EPSILONS["float16"] * size
    return FACTOR_HALF if is_half else FACTOR


def _rms(values: "torch.Tensor") -> float:
    """Of those that are finite. To ask which are takes longer than all the rest, and hardly ever is it not all."""
    if not math.isfinite(length := _length(values)):
        values = values[values.isfinite()]
        length = _length(values)
    return length / math.sqrt(max(1, values.numel()))


def _length(values: "torch.Tensor") -> float:
    import torch

    return float(torch.linalg.vector_norm(values))


def check_distribution(
    eager: Sequence[Observation], candidate: Sequence[Observation], cls: Numerics, allowed: str | None = None
) -> Check:
    """Of what is random on purpose: the sizes of tensors, and of results the means, lie as near in several draws of
    either as chance allows.
    """
    worst, where, what = 0.0, None, ""
    for draw in candidate:
        for name, base in _in_all(eager):
            if (wrong := _malformed(base, draw.get(name), allowed, result=is_result(name))) is not None:
                return Check(cls.value, None, passed=False, worst=name, reason=f"{name}: {wrong}", weak=True)
    for name, base in _in_all(eager, candidate):
        for said, statistic, slack in _statistics(base, allowed, result=is_result(name)):
            told = ([statistic(one[name]) for one in draws] for draws in (eager, candidate))
            distance = _distance(*told, rounding=slack)
            if distance >= worst:
                worst, where, what = distance, name, said
    wrong = None if worst <= SIGMAS else f"{where}: its {what} is {worst:.1f} standard errors from eager's"
    return Check(cls.value, None, wrong is None, where, wrong, weak=True)


SIGMAS = 6.0
"""Standard errors between two means of eight draws each, beyond which it is no chance: once in some ten thousand."""


SIZES_APART = 0.01
"""Of a tensor's size: noise of rounding adds to a gradient's, and dropout that scales by another rate far more."""


def still_random(
    eager: Sequence[Observation], candidate: Sequence[Observation], cls: Numerics, allowed: str | None = None
) -> Check:
    """What differed from draw to draw still does: a graph that replays one mask for ever would not."""
    for name, base in _in_all(eager, candidate):
        spread = max(_rms(one[name].values - base.values) for one in eager if one[name].shape == base.shape)
        if spread > base.slack(allowed) and not any(_differ(one[name], candidate[0][name]) for one in candidate):
            return Check(cls.value, None, passed=False, worst=name, reason=f"{name}: the same for every seed")
    return Check(cls.value, None, passed=True, weak=True)


def _in_all(*draws: Sequence[Observation]) -> list[tuple[str, Seen]]:
    """What shows in each: a layer may be left out at random, and what it gives with it."""
    first = draws[0][0]
    return [(name, base) for name, base in first.items() if all(name in one for some in draws for one in some)]


def _differ(one: Seen, other: Seen) -> bool:
    return one.shape != other.shape or not one.values.equal(other.values)


def _statistics(
    base: Seen, allowed: str | None, *, result: bool
) -> Iterator[tuple[str, Callable[[Seen], float], float]]:
    """And how far they may lie apart by rounding."""
    yield "size", _size, max(base.slack(allowed), SIZES_APART * _size(base))
    if result:
        yield "mean", _mean, base.slack(allowed)


def _size(seen: Seen) -> float:
    return _rms(seen.values)


def _mean(seen: Seen) -> float:
    return float(seen.values.mean()) if seen.values.numel() else 0.0


def _distance(one: list[float], other: list[float], *, rounding: float) -> float:
    """Welch's t, less what rounding may have moved."""
    means = [sum(values) / len(values) for values in (one, other)]
    variances = [
        sum((value - mean) ** 2 for value in values) / (len(values) - 1) / len(values)
        for values, mean in zip((one, other), means, strict=True)
    ]
    apart = max(0.0, abs(means[0] - means[1]) - rounding)
    return apart / math.sqrt(sum(variances)) if sum(variances) else math.inf if apart else 0.0
