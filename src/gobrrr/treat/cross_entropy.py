"""The loss that programs and libraries ask torch for by its name: while an edit is in force, another is asked instead.

By whoever asks, as a recomputation in a backward pass does from a thread of its own; but only in plain calls. Who
traces, scripts, compiles or overrides what is called under that name finds torch's own. `tests/test_treat_losses.py`
says what is assumed of torch.
"""

from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any

from gobrrr.treat.edit import Edit, held_by_all

LOSS = "cross_entropy"
"""The site."""


def torchs_own() -> Callable[..., Any]:
    """The one that is asked in the end, whatever stands under the name."""
    from torch.nn import functional

    found: Callable[..., Any] = functional.cross_entropy
    return getattr(found, "stands_for", found)


def standing_for_all(other: Callable[..., Any]) -> Iterator[Edit]:
    """Of several who want one of their own there, the last who came is asked: those before it when it has gone."""

    def write(wanted: bool) -> None:  # noqa: FBT001 (the value of the edit)
        if wanted:
            _WANTED.append(other)
        else:
            _WANTED.remove(other)

    yield Edit(lambda: other in _WANTED, write, value=True)
    yield held_by_all(LOSS, lambda: standing(_wanted))


_WANTED: list[Callable[..., Any]] = []


def _wanted(*args: Any, **kwargs: Any) -> Any:
    return _WANTED[-1](*args, **kwargs)


def standing(other: Callable[..., Any]) -> Edit:
    """The other under the name, for plain calls. While it is asked torch's own is there, for who compiles or overrides
    it. What a program puts there meanwhile, around this one, stays.
    """
    import torch
    from torch.nn import functional

    own, there, is_plain = torchs_own(), [functional.cross_entropy], _plainness()

    @wraps(own)
    def called(*args: Any, **kwargs: Any) -> Any:
        if torch.compiler.is_compiling() or there[0] is not called:  # ended, and kept by somebody
            return own(*args, **kwargs)
        asked = other if is_plain(*args, *kwargs.values()) else own
        _replace(called, own)
        try:
            return asked(*args, **kwargs)
        finally:
            _replace(own, there[0])

    vars(called).update(stands_for=own, __script_if_tracing_wrapper=True, __original_fn=own)  # torch.jit.script's marks

    def write(new: Callable[..., Any]) -> None:
        before, there[0] = there[0], new
        _replace(before, new)
        _replace(own, new)  # while it is asked

    return Edit(lambda: there[0], write, called)


def _replace(one: Callable[..., Any], other: Callable[..., Any]) -> None:
    """If it is there."""
    from torch.nn import functional

    if functional.cross_entropy is one:
        functional.cross_entropy = other


def _plainness() -> Callable[..., bool]:
    """Whether these are arguments of a call that nobody overrides, listens to, traces or wants tangents of, and that
    compilers know as eager does: they take integers of other kinds, or none. A default device is no matter of a loss,
    and our own counter counts what is done.
    """
    import torch
    from torch.autograd import forward_ad
    from torch.jit import is_tracing  # type: ignore[attr-defined]
    from torch.overrides import _get_current_function_mode_stack
    from torch.utils._device import DeviceContext
    from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

    from gobrrr.work.counter import Counter

    plain = torch.Tensor, torch.nn.Parameter

    def is_known(one: Any) -> bool:
        if type(one) in plain:
            return bool(one.is_floating_point()) or one.dtype is torch.int64
        return not hasattr(one, "__torch_function__")

    def is_plain(*args: Any) -> bool:
        overriding = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
        return (
            all(map(is_known, args))
            and all(isinstance(mode, DeviceContext) for mode in overriding)
            and all(isinstance(mode, Counter) for mode in _get_current_dispatch_mode_stack())
            and forward_ad._current_level < 0  # noqa: SLF001 (what its public names do not say)
            and not is_tracing()  # type: ignore[no-untyped-call]
        )

    return is_plain
