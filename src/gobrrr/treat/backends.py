"""Which of attention's kernels is the fastest, measured at the shapes that a step calls it with.

torch tries them in a fixed order, whatever the shape; which is the fastest depends on that, on dropout and on the
release.
"""

import math
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state import preserved
from gobrrr.treat import probe
from gobrrr.treat.attention import attention_heard
from gobrrr.treat.in_place import around
from gobrrr.treat.stillness import idle_optimizers, uncompiled
from gobrrr.treat.subject import Subject

if TYPE_CHECKING:
    import torch

FUSED = ("flash", "cudnn", "efficient")

SPELLED_OUT = "math"
"""Takes every call."""

BY_HAND = "by hand"
"""No kernel of torch's, but product, softmax, product, as programs spell them."""

FAR = -1e4
"""What is added to scores that are to be left out, or less."""


@dataclass(frozen=True, slots=True)
class AttentionShape:
    """What of a call of scaled_dot_product_attention decides how long it takes."""

    query: tuple[int, ...]
    key: tuple[int, ...]
    value: tuple[int, ...]
    mask: tuple[int, ...] | None
    mask_dtype: "torch.dtype | None"
    dtype: "torch.dtype"
    dropout: float
    causal: bool
    grouped: bool
    trains: bool
    mask_means: str | None = None
    """What the mask does, where it could do without being one."""


def attention_shapes(subject: Subject) -> Mapping[AttentionShape, int]:
    """How often a step calls attention, by shape."""
    found: Counter[AttentionShape] = Counter()

    def note(*args: Any, **kwargs: Any) -> None:
        found[_shape(*args, **kwargs)] += 1

    with uncompiled(subject), preserved(subject.origin), idle_optimizers(subject), attention_heard(note):
        subject.run()
        return dict(found)


def _shape(
    query: "torch.Tensor",
    key: "torch.Tensor",
    value: "torch.Tensor",
    attn_mask: "torch.Tensor | None" = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,  # noqa: FBT001, FBT002 (torch's signature)
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> AttentionShape:
    del scale
    import torch

    cast = torch.is_autocast_enabled(query.device.type) and query.is_floating_point()
    return AttentionShape(
        query=tuple(query.shape),
        key=tuple(key.shape),
        value=tuple(value.shape),
        mask=None if attn_mask is None else tuple(attn_mask.shape),
        mask_dtype=None if attn_mask is None else attn_mask.dtype,
        dtype=torch.get_autocast_dtype(query.device.type) if cast else query.dtype,
        dropout=dropout_p,
        causal=is_causal,
        grouped=enable_gqa,
        trains=query.requires_grad,
        mask_means=None if attn_mask is None else _meaning(attn_mask),
    )


def _meaning(mask: "torch.Tensor") -> str | None:
    """By its values: nothing left out, or all that comes later."""
    import torch

    seen = mask if mask.dtype == torch.bool else mask == 0
    if bool(seen.all()):
        return "leaves nothing out"
    hidden = mask.dtype == torch.bool or bool((mask.masked_fill(seen, -math.inf) <= FAR).all())
    past = torch.ones(mask.shape[-2:], dtype=torch.bool, device=mask.device).tril()
    square = mask.shape[-1] == mask.shape[-2]
    return "leaves out what comes later" if square and hidden and bool((seen == past).all()) else None


def attention_seconds(shapes: Iterable[tuple[AttentionShape, int]], device: str) -> Mapping[str | None, float]:
    """Of all calls of a step, forward and backward, by each kernel that takes them; None is torch's own choice."""
    calls = tuple(shapes)
    found = {name: calls_seconds(calls, name, device) for name in (None, *FUSED)}
    return {name: seconds for name, seconds in found.items() if seconds is not None}


def calls_seconds(shapes: Iterable[tuple[AttentionShape, int]], name: str | None, device: str) -> float | None:
    """None where that kernel does not take all of them."""
    each = [(_seconds(shape, name, device, probe.modes()), count) for shape, count in shapes]
    known = [seconds * count for seconds, count in each if seconds is not None]
    return sum(known) if len(known) == len(each) else None


@cache
def _seconds(shape: AttentionShape, name: str | None, device: str, _modes: tuple[Any, ...]) -> float | None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch warns of each kernel that does not take a call, and why
            return probe.device_seconds(partial(attending, shape, name, device), device)
    except RuntimeError:
        return None


def attending(shape: AttentionShape, name: str | None, device: str) -> Callable[[], object]:
    """Such a call on random numbers, with its gradient where the step trains."""
    import torch
    from torch.nn.functional import scaled_dot_product_attention

    attend = _by_hand if name == BY_HAND else scaled_dot_product_attention

    def made(size: tuple[int, ...]) -> "torch.Tensor":
        """Heads beside each other, as a projection leaves them."""
        laid = (*size[:-3], size[-2], size[-3], size[-1]) if len(size) > 3 else size
        one = torch.randn(laid, dtype=shape.dtype, device=device)
        return (one.transpose(-3, -2) if len(size) > 3 else one).requires_grad_(shape.trains)

    query, key, value = (made(size) for size in (shape.query, shape.key, shape.value))
    mask = None if shape.mask is None else torch.ones(shape.mask, dtype=shape.mask_dtype, device=device)

    def run() -> object:
        attended = attend(query, key, value, mask, shape.dropout, shape.causal, enable_gqa=shape.grouped)
        return torch.autograd.grad(attended, (query, key, value), attended.detach()) if shape.trains else attended

    return run if name in (None, BY_HAND) else preferring(run, name)


def _by_hand(
    query: "torch.Tensor", key: "torch.Tensor", value: "torch.Tensor", mask: Any, rate: float, *_: Any, **__: Any
) -> "torch.Tensor":
    from torch.nn.functional import dropout

    scores = query @ key.mT * query.shape[-1] ** -0.5
    if mask is not None:
        scores = scores + mask if mask.is_floating_point() else scores.masked_fill(~mask, -math.inf)
    return dropout(scores.softmax(-1), rate) @ value


def preferring(run: Callable[..., Any], *names: str) -> Callable[..., Any]:
    """With these kernels alone, the first that takes a call."""
    return around(run, _preferring, tuple(dict.fromkeys(names)))


def _preferring(run: Callable[..., Any], names: Sequence[str], *args: Any, **kwargs: Any) -> Any:
    from torch.nn.attention import sdpa_kernel

    with sdpa_kernel([backend(name) for name in names], set_priority=True):
        return run(*args, **kwargs)


def backend(name: str) -> Any:
    from torch.nn.attention import SDPBackend

    return SDPBackend.MATH if name == SPELLED_OUT else getattr(SDPBackend, f"{name.upper()}_ATTENTION")
