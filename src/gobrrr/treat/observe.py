"""Observing a step: what it gave back, which gradients it made, and everything that it left changed."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, TypeVar

from gobrrr.timing.state import preserved
from gobrrr.timing.state.generators import seeds
from gobrrr.timing.state.reach import is_open, is_wrapper, reached, slots, value_or_empty
from gobrrr.treat.edit import Edit, attribute, swap_off, swap_on
from gobrrr.treat.numerics import Observation, Seen
from gobrrr.treat.places import Place, bound, rebound
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

SAMPLE = 1 << 14
"""Elements of a tensor that are kept, evenly spread: enough for its error, and of its whole the size is kept too."""

SHAKE, SHAKE_HALF = 8, 0.5
"""Roundings of each number, as many ops leave them: what lies nearer than that to a turning is turned. Of types of two
bytes but one, to either side: eight would be six percent of all numbers in bf16, and excuse anything.
"""

MANY = 1_000_003
"""More than there are tensors: each has its own seed, and no other is shaken alike. A CPU looks at 32 bits of it."""

FLAT = 0.05
"""Of the largest number: a shake may have moved some."""

PRIME, CHUNK = 65_537, 1 << 22

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


def whole(subject: Subject, draws: Sequence[Draw], watched: Watched) -> list[Observation]:
    """Effects and gradients."""
    both = zip(observed(subject, draws, watched), gradients(subject, draws), strict=True)
    return [{**effects, **own} for effects, own in both]


def observed(subject: Subject, draws: Sequence[Draw], watched: Watched) -> list[Observation]:
    """What the step does from here with each. Everything is put back."""
    return _each(subject, draws, lambda: _effects(subject, watched), subject.inputs)


def gradients(subject: Subject, draws: Sequence[Draw]) -> list[Observation]:
    """Those that the step makes with each, its optimizers told to do nothing. Everything is put back."""
    return _each(subject, draws, lambda: _gradients(subject), subject.inputs)


_Look = TypeVar("_Look")


def _each(
    subject: Subject, draws: Sequence[Draw], look: Callable[[], _Look], inputs: "list[torch.Tensor]"
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
            found.append(look())
    return found


def _gradients(subject: Subject) -> Observation:
    """Without those that were there: between two trials they are of whichever step ran last."""
    import torch

    parameters = _parameters(subject)
    with torch.no_grad():
        for left in [parameter.grad for parameter in parameters.values() if parameter.grad is not None]:
            left.zero_()  # and not taken away: a step may want to find some
    with idle_optimizers(subject):
        subject.step()
        grads = {f"gradient of {name}": parameter.grad for name, parameter in parameters.items()}
        return seen({name: grad for name, grad in grads.items() if grad is not None})


def _parameters(subject: Subject) -> "dict[str, torch.Tensor]":
    """Of models, by their names; and those that only an optimizer holds, by number."""
    named = {
        f"{root}.{name}": parameter
        for root, model in subject.models.items()
        for name, parameter in model.named_parameters()
    }
    known = {id(parameter) for parameter in named.values()}
    held = [one for optimizer in subject.optimizers for group in optimizer.param_groups for one in group["params"]]
    free = {id(parameter): parameter for parameter in held if id(parameter) not in known}
    return named | {f"parameter {number}": parameter for number, parameter in enumerate(free.values())}


@contextmanager
def idle_optimizers(subject: Subject) -> Iterator[None]:
    """Steps leave their gradients behind."""
    edits = [
        *(attribute(optimizer, "step", partial(_only_asks, optimizer)) for optimizer in subject.optimizers),
        *(attribute(one, "zero_grad", _does_nothing) for one in (*subject.optimizers, *subject.models.values())),
    ]
    with _in_force(edits):
        yield


def _only_asks(
    optimizer: "torch.optim.Optimizer", closure: Callable[[], Any] | None = None, *_args: Any, **_kwargs: Any
) -> Any:
    """A step of an optimizer that changes nothing: where it is handed the loss to be computed, that is done once.

    A GradScaler leaves it to a fused optimizer to divide the gradients, and so that is done too.
    """
    import torch

    result = None
    if closure is not None:
        with torch.enable_grad():
            result = closure()
    scale = getattr(optimizer, "grad_scale", None)
    if scale is not None:
        for parameter in (one for group in optimizer.param_groups for one in group["params"] if one.grad is not None):
            parameter.grad.div_(scale)
    return result


def _does_nothing(*_args: Any, **_kwargs: Any) -> None:
    pass


@contextmanager
def without_dropout(subject: Subject) -> Iterator[bool]:
    """Nothing is dropped, whichever module holds the rate of it; gives whether anything would have been."""
    modules = [module for _, module in subject.modules() if module.training]
    rates = [attribute(module, name, 0.0) for module in modules for name in _rates(module)]
    with _in_force(rates):
        yield bool(rates)


def _rates(module: "torch.nn.Module") -> list[str]:
    """Numbers of its own: `p` of torch's kinds of dropout, `dropout`, `attention_dropout` or `drop_prob` of others."""
    from torch import nn

    kinds = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
    numbers = [name for name, value in vars(module).items() if isinstance(value, float) and value]
    dropping = [name for name in numbers if "drop" in name and "keep" not in name]
    return dropping + ["p" for name in numbers if name == "p" and isinstance(module, kinds)]


@contextmanager
def _in_force(edits: list[Edit]) -> Iterator[None]:
    swap_on(edits)
    try:
        yield
    finally:
        swap_off(edits)


def changing(subject: Subject) -> Watched:
    """The tensors that a step or a few leave changed: parameters, moments, statistics, caches."""
    import torch

    places, things = _places(subject), reached(subject.origin)
    tensors = [thing for thing in things if isinstance(thing, torch.Tensor) and _plain(thing)]
    named = bound(things)
    with preserved(subject.origin) as kept:
        steps = _until_updated(subject)
        kept.put_back()
        before = [tensor.detach().clone() for tensor in tensors]
        changed: dict[int, torch.Tensor] = {}
        renamed: dict[int, Place] = {}
        for _ in range(steps):  # after each: what two steps swap is as it was after the second
            subject.step()
            changed |= {id(one): one for one, old in zip(tensors, before, strict=True) if not _same(one, old)}
            renamed |= {id(place): place for place, now in rebound(named) if _plain(now)}
    inside = (
        places.get(id(tensor), (f"tensor {number}", partial(_itself, tensor)))
        for number, tensor in enumerate(changed.values())
    )
    outside = {f"bound of {place.name} {number}": place.find for number, place in enumerate(renamed.values())}
    return Watched(dict(inside) | outside, steps)


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
    """Parameters, buffers and moments that the step, as it is treated now, changes and did not as it came."""
    known = {id(find()) for find in watched.places.values()}  # under another name: a captured step writes in place
    others = {name: find for name, find in _places(subject).values() if name not in watched.places}
    left = {name: find for name, find in others.items() if _comparable(find()) and id(find()) not in known}

    def look() -> list[str]:
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

    return isinstance(thing, torch.Tensor) and _plain(thing) and not is_wrapper(thing)


def _some(tensor: "torch.Tensor") -> "torch.Tensor":
    return _sample(_dense(tensor.detach())).clone()


def _same_or_both_nan(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    return one.shape == other.shape and bool(((one == other) | (one.isnan() & other.isnan())).all())


def _itself(tensor: "torch.Tensor") -> "torch.Tensor":
    return tensor


def _places(subject: Subject) -> dict[int, tuple[str, Callable[[], Any]]]:
    """Of each tensor a name, and how to find what stands in its place."""
    import torch

    found: dict[int, tuple[str, Callable[[], Any]]] = {}
    for name, tensor in _parameters(subject).items():
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


def _plain(tensor: "torch.Tensor") -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta"


def _same(one: "torch.Tensor", other: "torch.Tensor") -> bool:
    import torch

    return one.shape == other.shape and torch.equal(one.detach(), other)


def flat(value: Any, name: str = "") -> Iterator[tuple[str, "torch.Tensor"]]:
    """Tensors and numbers in a result: of containers and of whatever else holds some, as a model's output or a cache.

    A number that was read from a tensor is as good as the tensor. An integer may count anything.
    """
    yield from _flat(value, name, set())


def _flat(value: Any, name: str, met: set[int]) -> Iterator[tuple[str, "torch.Tensor"]]:
    """Each thing once, for a result may hold itself; and no models and optimizers, which are watched anyway."""
    import torch

    if isinstance(value, torch.Tensor):
        yield name, value
    elif isinstance(value, float) or _is_array(value):
        yield name, torch.as_tensor(value)
    elif id(value) not in met and not isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        met.add(id(value))
        for part, one in _parts(value):
            yield from _flat(one, f"{name}{part}", met)


def _is_array(value: Any) -> bool:
    """Of numpy, and of numbers."""
    return hasattr(value, "__array_interface__") and value.dtype.kind in "biufc"


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        yield from ((f".{key}", one) for key, one in value.items())
    elif isinstance(value, list | tuple):
        yield from ((f"[{number}]", one) for number, one in enumerate(value))
    elif is_open(value):
        yield from ((f".{key}", one) for key, one in getattr(value, "__dict__", {}).items())
        yield from ((f".{one.__name__}", value_or_empty(partial(one.__get__, value))) for one in slots(value))


def seen(tensors: "Mapping[str, torch.Tensor]") -> dict[str, Seen]:
    """Copies, for what they are taken from will change: of a device's tensors by one transfer, not by thousands."""
    import torch

    with torch.no_grad():
        wholes = {name: _dense(tensor.detach()) for name, tensor in tensors.items()}
        sparse = {name: tensor for name, tensor in tensors.items() if tensor.layout is torch.sparse_coo}
        wholes |= {f"{name}, where": tensor.detach().coalesce().indices() for name, tensor in sparse.items()}
        found: dict[str, Seen] = {}
        for device in {whole.device for whole in wholes.values()}:
            found |= _seen({name: whole for name, whole in wholes.items() if whole.device == device})
    return {name: found[name] for name in wholes}


def _dense(tensor: "torch.Tensor") -> "torch.Tensor":
    """The numbers of any kind of tensor in one that has elements to pick from: of a sparse one those that it has."""
    import torch

    if tensor.is_nested:
        return torch.cat([_dense(part).flatten() for part in tensor.unbind()])
    if tensor.layout is torch.sparse_coo:
        return _dense(tensor.coalesce().values())
    if tensor.layout is not torch.strided:
        return _dense(tensor.to_dense() if tensor.is_mkldnn else tensor.values())
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_floating_point() and tensor.itemsize == 1:
        return tensor.float()  # for which torch computes next to nothing
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _seen(wholes: "Mapping[str, torch.Tensor]") -> Iterator[tuple[str, Seen]]:
    """Of one device."""
    import torch

    some = [_sample(whole).double() for whole in wholes.values()]
    norms = [_norm(whole) for whole in wholes.values()]
    values = torch.cat(some).cpu().split([len(one) for one in some])  # type: ignore[no-untyped-call]
    for (name, whole), value, norm in zip(wholes.items(), values, torch.stack(norms).tolist(), strict=True):
        dtype = str(whole.dtype).removeprefix("torch.")
        yield name, Seen(value, norm, tuple(whole.shape), dtype, exact=not whole.is_floating_point())


def _sample(whole: "torch.Tensor") -> "torch.Tensor":
    """By an odd stride: an even one meets the same columns in every row."""
    return whole.flatten()[:: max(1, whole.numel() // SAMPLE) | 1]


def _norm(whole: "torch.Tensor") -> "torch.Tensor":
    """Of integers the size says nothing; in a sum where each place has its weight every one of them counts."""
    import torch

    if whole.is_floating_point():
        norm: torch.Tensor = torch.linalg.vector_norm(whole, dtype=torch.float64)
        return norm
    total = torch.zeros((), dtype=torch.long, device=whole.device)
    for number, part in enumerate(whole.flatten().split(CHUNK)):  # type: ignore[no-untyped-call]
        weights = torch.arange(1, part.numel() + 1, device=whole.device).remainder_(PRIME)
        total += (number + 1) * (part.long() * weights).sum()
    return total.remainder(1 << 52).double()


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

    def look() -> dict[str, bool]:
        return {name: bool(one.values.isfinite().all()) for name, one in seen(dict(flat(subject.step()))).items()}

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
            if tensor.numel() > 1 and tensor.dtype is not torch.bool and _plain(tensor) and tensor.is_leaf:
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
    """Effects and gradients of the same step computed in fp64; None where it does not run so.

    Shaken, it begins with numbers that differ from its own by what rounding does, drawn by that seed.
    """
    try:
        with preserved(subject.origin):
            widen(subject, shake)
            return whole(subject, draws, watched)
    except Exception:  # noqa: BLE001 (a model that wants fp32 says so by any error)
        return None


def _effects(subject: Subject, watched: Watched) -> dict[str, Seen]:
    found: dict[str, Seen] = {}
    for number in range(watched.steps):
        found |= seen({f"result{number}{name}": one for name, one in flat(subject.step())})
    return found | seen_now(watched)


def seen_now(watched: Watched) -> dict[str, Seen]:
    """Where there is still a tensor."""
    import torch

    tensors = {name: find() for name, find in watched.places.items()}
    return seen({name: one for name, one in tensors.items() if isinstance(one, torch.Tensor)})


def widen(subject: Subject, shake: int | None = None) -> None:
    """Every floating tensor of more than one number that the step reaches, in fp64: what shares memory still does."""
    import torch

    tensors = [thing for thing in reached(subject.origin) if isinstance(thing, torch.Tensor)]
    found = [one for one in tensors if one.is_floating_point() and one.dim() and _plain(one)]
    sharing: defaultdict[object, list[torch.Tensor]] = defaultdict(list)
    for tensor in found:
        sharing[_memory(tensor)].append(tensor)
    for number, sharers in enumerate(sharing.values()):
        if len(sharers) == 1:
            sharers[0].data = _widened(sharers[0].data, shake, number)
            continue
        spans = [_span(tensor) for tensor in sharers]
        begin, end = min(first for first, _ in spans), max(last for _, last in spans)
        wide = _widened(_stretch(sharers[0], begin, end), shake, number)
        for tensor in sharers:
            tensor.data = wide.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset() - begin)


def _memory(tensor: "torch.Tensor") -> object:
    return tensor.untyped_storage().data_ptr(), tensor.device, tensor.dtype


def _span(tensor: "torch.Tensor") -> tuple[int, int]:
    """Of its storage, the elements from the first to behind the last."""
    first = int(tensor.storage_offset())
    sizes = zip(tensor.size(), tensor.stride(), strict=True)
    return first, first + (sum((size - 1) * stride for size, stride in sizes) + 1 if tensor.numel() else 0)


def _stretch(tensor: "torch.Tensor", begin: int, end: int) -> "torch.Tensor":
    """The numbers of the memory that it lies in, from one to another."""
    return tensor.new_empty(0).set_(tensor.untyped_storage(), begin, (end - begin,), (1,))


def _widened(tensor: "torch.Tensor", shake: int | None, number: int) -> "torch.Tensor":
    import torch

    wide = tensor.double()
    if shake is not None:
        rounding = (SHAKE if tensor.itemsize > 2 else SHAKE_HALF) * torch.finfo(tensor.dtype).eps
        generator = torch.Generator(tensor.device).manual_seed(shake * MANY + number)
        wide *= 1 + rounding * torch.empty_like(wide).normal_(generator=generator)
    return wide
