"""The loss that programs and libraries ask torch for: while an edit is in force, generated kernels answer plain calls.

torch's function stays the object that it is, for who holds, saves, scripts, traces or overrides it. Its code is
another, which asks here, whoever calls it and from whichever thread, as a recomputation in a backward pass does. What
is no plain call is answered by torch's own code. `tests/test_treat_cross_entropy.py` says what is assumed of torch.

The gradient is one of autograd's as any other: it may be asked for more than once, and by who wants second derivatives
or many of them at once, which are computed op by op.
"""

from collections.abc import Callable, Iterator
from functools import cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

from gobrrr.treat.compiling import VERSIONS, inductor_after, more_versions
from gobrrr.treat.edit import Edit, held_by_all
from gobrrr.treat.loss_head import row_gradients, row_losses
from gobrrr.treat.treatment import Unfit

if TYPE_CHECKING:
    import torch

LOSS = "cross_entropy"
"""The site."""

REDUCTIONS = ("none", "mean", "sum")
DEVICES = ("cpu", "cuda")

LEAST = 1 << 20
"""Logits: fewer stay in the cache, where nine passes over them take no longer than to enter compiled code twice."""


def generated_loss() -> Iterator[Edit]:
    """For the whole process, as long as anybody wants it."""
    yield more_versions(VERSIONS)
    yield held_by_all(LOSS, _other_code)


def is_known(
    input: "torch.Tensor",  # noqa: A002 (the signature of torch's own)
    target: "torch.Tensor",
    weight: object = None,
    size_average: object = None,
    ignore_index: int = -100,
    reduce: object = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> bool:
    """Whether a loss is one that is generated: rows of one number a class, of each of which one class is right. What
    smooths or weighs counts all classes, and what is not as it should be is for torch to tell.
    """
    import torch

    del ignore_index
    plain = weight is None and size_average is None and reduce is None and not label_smoothing
    return (
        plain
        and reduction in REDUCTIONS
        and input.dim() == 2
        and input.numel() >= LEAST
        and input.is_floating_point()
        and input.device.type in DEVICES
        and target.dtype is torch.int64
        and target.shape == input.shape[:1]
        and target.device == input.device
    )


def is_torchs() -> bool:
    """The function that is there, and no program's own around it."""
    from torch.nn import functional

    own: Any = functional.cross_entropy
    return isinstance(own, FunctionType) and own.__closure__ is None and own.__code__.co_filename == functional.__file__


def _other_code() -> Edit:
    from torch.nn import functional

    if not is_torchs():
        raise Unfit("another function stands for torch's cross_entropy")
    own: Any = functional.cross_entropy
    code = torchs_own().__code__  # while it is there
    asking = _asking.__code__.replace(
        co_filename=code.co_filename, co_firstlineno=code.co_firstlineno, co_name=code.co_name
    )  # where torch.jit.script reads what it is
    return Edit(lambda: own.__code__, lambda new: setattr(own, "__code__", new), asking)


@cache
def torchs_own() -> Callable[..., Any]:
    """A function of the same code as torch's has when nobody has put another there."""
    from torch.nn import functional

    own = functional.cross_entropy
    return FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__)


def _asking(
    input: Any,  # noqa: A002 (as above)
    target: Any,
    weight: Any = None,
    size_average: Any = None,
    ignore_index: Any = -100,
    reduce: Any = None,
    reduction: Any = "mean",
    label_smoothing: Any = 0.0,
) -> Any:
    """Its code runs as that of torch's function, among names of torch's."""
    from gobrrr.treat.cross_entropy import answered

    return answered(input, target, weight, size_average, ignore_index, reduce, reduction, label_smoothing)


def answered(logits: "torch.Tensor", target: "torch.Tensor", *how: Any) -> "torch.Tensor":
    ignored, reduction = how[2], how[4]
    if (
        _is_plain(logits, target)
        and is_known(logits, target, *how)
        and not _is_seen_to_be_none(logits, target, ignored)
    ):
        loss: torch.Tensor = _generated().apply(logits, target, ignored, reduction, _given_in(logits))  # type: ignore[no-untyped-call]
        return loss
    found: torch.Tensor = torchs_own()(logits, target, *how)
    return found


def _is_seen_to_be_none(logits: "torch.Tensor", target: "torch.Tensor", ignored: int) -> bool:
    """Whether some class is none: generated code for a CPU ends the process there, if it runs on several threads. A GPU
    asserts it by itself, and would have to be waited for.
    """
    if target.device.type != "cpu":
        return False
    is_none = (target < 0) | (target >= logits.shape[-1])
    return bool((is_none & (target != ignored)).any())


def _given_in(logits: "torch.Tensor") -> "torch.dtype":
    import torch

    kind = logits.device.type
    return _result_type(logits.dtype, kind, torch.is_autocast_enabled(kind))


@cache
def _result_type(dtype: "torch.dtype", kind: str, autocast: bool) -> "torch.dtype":  # noqa: FBT001 (is in force)
    """Of a loss over logits of this type: autocast may have it wider."""
    import torch

    del autocast
    row = torch.zeros(1, 2, dtype=dtype, device=kind), torch.zeros(1, dtype=torch.int64, device=kind)
    found: torch.dtype = torchs_own()(*row).dtype
    return found


@cache
def _generated() -> "type[torch.autograd.Function]":
    import torch

    backend = inductor_after()
    losses, gradients = torch.compile(_losses, backend=backend), torch.compile(_gradients, backend=backend)

    class GeneratedLoss(torch.autograd.Function):
        @staticmethod
        def forward(
            ctx: Any, logits: "torch.Tensor", target: "torch.Tensor", ignored: int, reduction: str, dtype: "torch.dtype"
        ) -> "torch.Tensor":
            loss, greatest, likely, counted = losses(logits, target, ignored, reduction)
            ctx.save_for_backward(logits, target, greatest, likely, counted)
            ctx.how = ignored, reduction
            return loss.to(dtype)

        @staticmethod
        def backward(ctx: Any, upstream: "torch.Tensor") -> "tuple[torch.Tensor, None, None, None, None]":
            logits, target, greatest, likely, counted = ctx.saved_tensors
            asked = gradients
            if torch.is_grad_enabled() or not _is_plain(upstream):
                asked, (_, greatest, likely, counted) = _gradients, _losses(logits, target, *ctx.how)  # derived, too
            return asked(logits, target, greatest, likely, counted, upstream, *ctx.how), None, None, None, None

    return GeneratedLoss


def _losses(
    logits: "torch.Tensor", target: "torch.Tensor", ignored: int, reduction: str
) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]":
    """And what its gradient is made of: two numbers a row, and how many rows count."""
    losses, greatest, likely = row_losses(logits, target, ignored)
    counted = (target != ignored).sum()
    if reduction == "none":
        return losses, greatest, likely, counted
    total = losses.sum()
    return total / counted if reduction == "mean" else total, greatest, likely, counted


def _gradients(
    logits: "torch.Tensor",
    target: "torch.Tensor",
    greatest: "torch.Tensor",
    likely: "torch.Tensor",
    counted: "torch.Tensor",
    upstream: "torch.Tensor",
    ignored: int,
    reduction: str,
) -> "torch.Tensor":
    each = upstream / counted if reduction == "mean" else upstream
    return row_gradients(logits, target, greatest, likely, each.to(greatest.dtype), ignored)


def _is_plain(*tensors: "torch.Tensor") -> bool:
    """Whether nobody overrides, listens to, traces or transforms a call with these, or wants tangents of it. A default
    device is no matter of a loss, and our own counter counts what is done: but for what would be done eagerly.
    """
    import torch
    from torch._C._functorch import is_legacy_batchedtensor, peek_interpreter_stack
    from torch._dynamo import eval_frame
    from torch.autograd import forward_ad
    from torch.jit import is_tracing  # type: ignore[attr-defined]
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    from gobrrr.work.counter import Counter

    overriding = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    return (
        all(type(one) in (torch.Tensor, torch.nn.Parameter) for one in tensors)
        and all(isinstance(mode, DeviceContext) for mode in overriding)
        and all(isinstance(mode, Counter) for mode in _get_current_dispatch_mode_stack())
        and peek_interpreter_stack() is None
        and not any(map(is_legacy_batchedtensor, tensors))
        and forward_ad._current_level < 0  # noqa: SLF001 (what its public names do not say)
        and eval_frame._stance.stance == "default"  # noqa: SLF001 (likewise)
        and not torch.compiler.is_compiling()
        and not is_tracing()  # type: ignore[no-untyped-call]
    )
