"""Samples: of the tensors in a result or in a step's reach, what is kept to be compared."""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state.reach import is_open, slots, value_or_empty
from gobrrr.treat.numerics import Seen

if TYPE_CHECKING:
    import torch

SAMPLE = 1 << 14
"""Elements of a tensor that are kept, evenly spread: enough for its error, and of its whole the size is kept too."""

PRIME, CHUNK = 65_537, 1 << 22
"""Of integers: as many places have a weight of their own, and as many elements are weighed at a time."""


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
        wholes = {name: dense(tensor.detach()) for name, tensor in tensors.items()}
        sparse = {name: tensor for name, tensor in tensors.items() if tensor.layout is torch.sparse_coo}
        wholes |= {f"{name}, where": tensor.detach().coalesce().indices() for name, tensor in sparse.items()}
        found: dict[str, Seen] = {}
        for device in {whole.device for whole in wholes.values()}:
            found |= _seen({name: whole for name, whole in wholes.items() if whole.device == device})
    return {name: found[name] for name in wholes}


def dense(tensor: "torch.Tensor") -> "torch.Tensor":
    """The numbers of any kind of tensor in one that has elements to pick from: of a sparse one those that it has."""
    import torch

    if tensor.is_nested:
        return torch.cat([dense(part).flatten() for part in tensor.unbind()])
    if tensor.layout is torch.sparse_coo:
        return dense(tensor.coalesce().values())
    if tensor.layout is not torch.strided:
        return dense(tensor.to_dense() if tensor.is_mkldnn else tensor.values())
    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.is_floating_point() and tensor.itemsize == 1:
        return tensor.float()  # for which torch computes next to nothing
    return torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor


def _seen(wholes: "Mapping[str, torch.Tensor]") -> Iterator[tuple[str, Seen]]:
    """Of one device."""
    import torch

    some = [sample(whole).double() for whole in wholes.values()]
    norms = [_norm(whole) for whole in wholes.values()]
    values = torch.cat(some).cpu().split([len(one) for one in some])  # type: ignore[no-untyped-call]
    for (name, whole), value, norm in zip(wholes.items(), values, torch.stack(norms).tolist(), strict=True):
        dtype = str(whole.dtype).removeprefix("torch.")
        yield name, Seen(value, norm, tuple(whole.shape), dtype, exact=not whole.is_floating_point())


def sample(whole: "torch.Tensor") -> "torch.Tensor":
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


def plain(tensor: "torch.Tensor") -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested and tensor.device.type != "meta"
