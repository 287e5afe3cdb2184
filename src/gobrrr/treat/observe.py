"""Observing a step: what it gave back, which gradients it made, and everything that it left changed."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from gobrrr.timing.state import preserved
from gobrrr.timing.state.generators import seeds
from gobrrr.timing.state.reach import is_wrapper, reached
from gobrrr.treat.numerics import Observation, Seen
from gobrrr.treat.places import Place, bound, rebound
from gobrrr.treat.precision import fp32_products
from gobrrr.treat.reference import widen, without_autocast
from gobrrr.treat.samples import dense, flat, plain, sample, seen
from gobrrr.treat.stillness import idle_optimizers
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

FLAT = 0.05
"""Of the largest number: a shake may have moved some."""

STEPS, LONG = 2, 16
"""Whose effect is observed: of what is frozen by mistake, as a count of steps in a captured graph, two show it. Where
gradients are added up over more, as many as it takes until optimizers have done something, if that is not too long.
"""


@dataclass(frozen=True, slots=True)
class Draw:
    """Seeds: of fresh inputs, and of whatever is random in the step."""

    inputs: int
    random: int


@dataclass(frozen=True, slots=True)
class Watched:
    """What steps change."""

    places: Mapping[str, Callable[[], Any]]
    """By name, where it is to be found, for a treatment may put another tensor there."""
    steps: int
    """After which it is looked at."""
    inputs: Sequence["torch.Tensor"] = ()
    """Those that nobody writes into, not even what is there already, as a cache that is filled anew."""


def whole(subject: Subject, draws: Sequence[Draw], watched: Watched) -> list[Observation]:
    """Effects and gradients."""
    both = zip(observed(subject, draws, watched), gradients(subject, draws), strict=True)
    return [{**effects, **own} for effects, own in both]


def observed(subject: Subject, draws: Sequence[Draw], watched: Watched) -> list[Observation]:
    """What the step does from here with each. Everything is put back."""
    return _each(subject, draws, partial(_effects, subject, watched), subject.inputs)


def gradients(subject: Subject, draws: Sequence[Draw]) -> list[Observation]:
    """Those that the step makes with each, its optimizers told to do nothing. Everything is put back."""
    return _each(subject, draws, lambda _: _gradients(subject), subject.inputs)


_Look = TypeVar("_Look")


def _each(
    subject: Subject, draws: Sequence[Draw], look: Callable[[Draw], _Look], inputs: "list[torch.Tensor]"
) -> list[_Look]:
    """From here each time. Of a large model, to remember everything takes longer than to look."""
    found: list[_Look] = []
    with preserved(subject.origin) as kept:
        seeded = list(seeds(reached(subject.origin)))
        for draw in draws:
            if found:
                kept.put_back()
            for seed in seeded:
                seed(draw.random)
            redraw(inputs, draw.inputs)
            found.append(look(draw))
    return found


def _gradients(subject: Subject) -> Observation:
    """Without those that were there: between two trials they are of whichever step ran last."""
    import torch

    parameters = subject.parameters()
    with torch.no_grad():
        for left in [parameter.grad for parameter in parameters.values() if parameter.grad is not None]:
            left.zero_()  # and not taken away: a step may want to find some
    with idle_optimizers(subject):
        subject.step()
        grads = {f"gradient of {name}": parameter.grad for name, parameter in parameters.items()}
        return seen({name: grad for name, grad in grads.items() if grad is not None})


def changing(subject: Subject, inputs: "Sequence[torch.Tensor]") -> Watched:
    """The tensors that a step or a few leave changed: parameters, moments, statistics, caches. And inputs that stay."""
    import torch

    places, things = _places(subject), reached(subject.origin)
    tensors = [thing for thing in things if isinstance(thing, torch.Tensor) and plain(thing)]
    named = bound(things)
    with preserved(subject.origin) as kept:
        steps = _until_updated(subject)
        kept.put_back()
        before = [tensor.detach().clone() for tensor in tensors]
        unwritten = [(one, one._version) for one in inputs if not one.is_inference()]  # noqa: SLF001 (torch documents it)
        changed: dict[int, torch.Tensor] = {}
        renamed: dict[int, Place] = {}
        for _ in range(steps):  # after each: what two steps swap is as it was after the second
            subject.step()
            changed |= {id(one): one for one, old in zip(tensors, before, strict=True) if not _same(one, old)}
            renamed |= {id(place): place for place, now in rebound(named) if _comparable(now)}
        still = [one for one, version in unwritten if one._version == version]  # noqa: SLF001
    inside = (
        places.get(id(tensor), (f"tensor {number}", partial(_itself, tensor)))
        for number, tensor in enumerate(changed.values())
    )
    outside = {f"bound of {place.name} {number}": place.find for number, place in enumerate(renamed.values())}
    return Watched(dict(inside) | outside, steps, still)


def _until_updated(subject: Subject) -> int:
    """Steps until every optimizer that ever does one has done it: a step that adds up gradients makes it wait."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    waiting, needed = {id(optimizer) for optimizer in subject.optimizers}, STEPS
    hook = register_optimizer_step_post_hook(lambda done, *_: waiting.discard(id(done)))  # a wrapper may have no hooks
    try:
        for taken in range(1, LONG + 1):
            before = len(waiting)
            if not before:
                break
            subject.step()
            if len(waiting) < before:
                needed = max(needed, taken)
    finally:
        hook.remove()
    return needed


def touched(subject: Subject, watched: Watched) -> list[str]:
    """Parameters, buffers, moments and inputs that the step, as it is treated now, changes and did not as it came."""
    known = {id(find()) for find in watched.places.values()}  # under another name: a captured step writes in place
    others = {name: find for name, find in _places(subject).values() if name not in watched.places}
    others |= {f"input {number}": partial(_itself, one) for number, one in enumerate(watched.inputs)}
    left = {name: find for name, find in others.items() if _comparable(find()) and id(find()) not in known}

    def look(_draw: Draw) -> list[str]:
        before = {name: _some(find()) for name, find in left.items()}
        for _ in range(watched.steps):
            subject.step()
        after = {name: find() for name, find in left.items()}
        return [
            name for name, one in after.items() if _comparable(one) and not _same_or_both_nan(_some(one), before[name])
        ]

    return _each(subject, (Draw(0, 0),), look, [])[0]


def _comparable(thing: object) -> bool:
    import torch

    return isinstance(thing, torch.Tensor) and plain(thing) and not is_wrapper(thing)


def _some(tensor: "torch.Tensor") -> "torch.Tensor":
    return sample(dense(tensor.detach())).clone()


def _same_or_both_nan(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _itself(tensor: "torch.Tensor") -> "torch.Tensor":
    return tensor


def _places(subject: Subject) -> dict[int, tuple[str, Callable[[], Any]]]:
    """Of each tensor a name, and how to find what stands in its place."""
    import torch

    found: dict[int, tuple[str, Callable[[], Any]]] = {}
    for name, tensor in subject.parameters().items():
        found[id(tensor)] = name, partial(_itself, tensor)
    for root, model in subject.models.items():
        for name, tensor in model.named_buffers():
            found[id(tensor)] = f"{root}.{name}", partial(_itself, tensor)
    for optimizer in subject.optimizers:
        for parameter, state in optimizer.state.items():
            if id(parameter) not in found or not isinstance(state, dict):
                continue  # of the optimizer's own, or of a parameter that it has no more
            moments = {key: value for key, value in state.items() if isinstance(value, torch.Tensor)}
            owner = found[id(parameter)][0]
            found |= {id(value): (f"{key} of {owner}", partial(state.get, key)) for key, value in moments.items()}
    return found


def _same(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    import torch

    return one.shape == other.shape and torch.equal(one.detach(), other)


def shuffled_inputs(subject: Subject, draws: Sequence[Draw]) -> "list[torch.Tensor]":
    """Those whose numbers may stand in any order: the step still runs, and what was finite is.

    Not so of offsets, of lengths that have to fall, of matrices that have to be positive definite. Where all of them
    cannot be shuffled, each is tried beside those before it.
    """
    usual = _finite(subject, draws, [])

    def still_runs(inputs: "list[torch.Tensor]") -> bool:
        return _finite(subject, draws, inputs) == usual

    if still_runs(subject.inputs):
        return subject.inputs
    found: list[torch.Tensor] = []
    for one in subject.inputs:
        if still_runs([*found, one]):
            found.append(one)
    return found


def _finite(subject: Subject, draws: Sequence[Draw], inputs: "list[torch.Tensor]") -> list[dict[str, bool]] | None:
    """Whether each tensor of the results is, with these inputs shuffled; None where the step does not run so."""

    def look(draw: Draw) -> dict[str, bool]:
        """Of two steps, each with others: as they will be observed."""
        found = seen(dict(flat(subject.step(), "first")))
        redraw(inputs, draw.inputs + 1)
        found |= seen(dict(flat(subject.step(), "second")))
        return {name: bool(one.values.isfinite().all()) for name, one in found.items()}

    try:
        return _each(subject, draws, look, inputs)
    except Exception:  # noqa: BLE001 (of the user's code)
        return None


def redraw(inputs: "list[torch.Tensor]", seed: int) -> None:
    """Fresh inputs: the same numbers in another order, and where all are the same, others up to a fifth nearer to zero,
    or to one: a target of ones is to stay between the two, or a kernel ends the process. Their few bits fit any type.

    In place, because a captured graph reads them where they lie. Truth values stay: a mask without a one is no input.
    """
    import torch

    with torch.no_grad():
        for tensor in inputs:
            if tensor.numel() > 1 and tensor.dtype is not torch.bool and plain(tensor) and tensor.is_leaf:
                generator = torch.Generator(tensor.device).manual_seed(seed)
                order = torch.randperm(tensor.numel(), generator=generator, device=tensor.device)
                tensor.copy_(tensor.flatten()[order].reshape(tensor.shape))
                if tensor.is_floating_point() and _is_flat(tensor):
                    steps = torch.randint(4, tensor.shape, generator=generator, device=tensor.device).to(tensor) / 16
                    tensor.copy_(torch.where(tensor == 0, steps, tensor * (1 - steps)))


def _is_flat(tensor: "torch.Tensor") -> bool:
    """But for what shakes. A number that counts something, as a time, is no such."""
    low, high = (float(one) for one in tensor.aminmax())
    largest = max(abs(high), abs(low))
    counts = largest > 1 and low == high == round(high)
    return isfinite(largest) and high - low <= FLAT * largest and not counts


def exact(
    subject: Subject, draws: Sequence[Draw], watched: Watched, *, shake: int | None = None
) -> list[Observation] | None:
    """Effects and gradients of the same step computed in fp64; where that does not run, or not in the memory that there
    is, in fp32, if any of it was narrower; else None.

    Shaken, it begins with numbers that differ from its own by what rounding does, drawn by that seed.
    """
    import torch

    look = partial(whole, subject, draws, watched)
    with suppress(Exception), preserved(subject.origin):  # a model that wants fp32 says so by any error
        widen(subject, torch.float64, shake)
        return look()
    with suppress(Exception), preserved(subject.origin), without_autocast() as narrowed:
        fp32_products("highest", "ieee").swap()  # which is put back with all else
        is_wider = widen(subject, torch.float32, shake)
        found = look()
        return found if is_wider or narrowed else None
    return None


def _effects(subject: Subject, watched: Watched, draw: Draw) -> dict[str, Seen]:
    """Each step with other inputs than the one before: what keeps a result for the next time shows it then. But not
    where the step itself has written.
    """
    found: dict[str, Seen] = {}
    unwritten = {id(one) for one in watched.inputs}
    inputs = [one for one in subject.inputs if id(one) in unwritten]
    for number in range(watched.steps):
        if number:
            redraw(inputs, draw.inputs + number)
        found |= seen({f"result{number}{name}": one for name, one in flat(subject.step())})
    return found | seen_now(watched)


def seen_now(watched: Watched) -> dict[str, Seen]:
    """Where there is still a tensor."""
    import torch

    tensors = {name: find() for name, find in watched.places.items()}
    return seen({name: one for name, one in tensors.items() if isinstance(one, torch.Tensor)})
