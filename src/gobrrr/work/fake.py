"""Fake tensors: shapes and types without memory. torch keeps them private, so they are touched here alone.

Assumed, and held by tests: under `FakeTensorMode` a model can be built, moved, run forward and backward and stepped,
an op whose result depends on values raises one of the exceptions below, naming the op, and what the mode does not
remember from before it finds by `_dispatch_impl`.
"""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any
from unittest import mock

import torch
from torch._ops import HigherOrderOperator
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.weak import WeakIdKeyDictionary

from gobrrr.work.shortcuts import SHORTCUTS

_optimizer = import_module("torch.optim.optimizer")  # torch.optim hides its module of that name

_OVERWRITING = frozenset("random_ uniform_ normal_ fill_ zero_ bernoulli_ exponential_".split())
"""Whatever the tensor held before, afterwards its values are known."""

ASK_DEVICE = torch.ops.prim.device.default

SMALL = 1 << 14
"""Elements up to which a tensor's values are kept: token ids and schedules are smaller, activations larger."""


class ShortMode(FakeTensorMode):  # type: ignore[no-untyped-call]
    """Knows some results without looking for them. Half of the time of counting a model for the first time."""

    def _dispatch_impl(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        if (shortcut := SHORTCUTS.get(func)) is not None:
            with self:
                found = shortcut(*args, **kwargs)
            if found is not None:
                return found
        return super()._dispatch_impl(func, types, args, kwargs)


@contextmanager
def fake_tensors() -> Iterator[None]:
    """Everything made inside is fake, but for the values of small tensors, which models like to look at.

    `model.to(...)` swaps the content of fake parameters and refuses those that are weakly referenced, which the mode's
    own memo of converted tensors does; so the memo, a mere cache, is emptied before each swap. `trunc_normal_` draws
    until all values fit, and parameters have none; so it is passed over. Real tensors that were there before take part
    by their shapes. A copied fake tensor would copy its mode; there is one. Optimizers loop over parameters of types
    they do not know, and must not over fakes. The mode logs every op that fails; the error itself is enough.
    """
    mode = ShortMode(allow_non_fake_inputs=True)
    small_values = SmallValues(mode)
    swap = torch.utils.swap_tensors

    def swap_unremembered(one: torch.Tensor, other: torch.Tensor) -> None:
        mode.fake_tensor_converter.meta_converter.tensor_memo.clear()
        small_values.forget(one, other)
        swap(one, other)  # type: ignore[no-untyped-call]

    with (
        warnings.catch_warnings(),
        torch.random.fork_rng(),
        mock.patch.object(logging.getLogger(FakeTensorMode.__module__), "disabled", new=True),
        mock.patch.object(torch.utils, "swap_tensors", swap_unremembered),
        mock.patch.object(torch.nn.init, "_no_grad_trunc_normal_", lambda tensor, *_, **__: tensor),
        mock.patch.object(FakeTensorMode, "__deepcopy__", lambda own, _: own, create=True),
        mock.patch.object(_optimizer, "_foreach_supported_types", [torch.nn.Parameter, torch.Tensor, FakeTensor]),
        mode,
        small_values,
    ):
        warnings.filterwarnings("ignore", message="Accessing the data pointer of FakeTensor")  # as deepcopy does
        yield


class SmallValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Computes small CPU tensors that depend on nothing large for real beside their fakes.

    `[rate.item() for rate in torch.linspace(0, 0.1, depth)]` in a constructor, `if mask.all()` in a forward: such
    questions have answers as long as nothing but small tensors goes into them. Uninitialised memory has no value, and
    what needs a gradient is trained, not asked; so parameters and activations stay fake.
    """

    supports_higher_order_operators = True

    def __init__(self, mode: FakeTensorMode) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._mode = mode
        self._real = WeakIdKeyDictionary()
        self._stand_ins = WeakIdKeyDictionary()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is ASK_DEVICE and isinstance(args[0], FakeTensor):
            return device_of(args[0])
        if isinstance(func, HigherOrderOperator) or self._is_beyond(func, args):
            return func(*args, **kwargs)
        inputs = _tensors_in((args, tuple(kwargs.values())))
        if not all(isinstance(tensor, FakeTensor) for tensor in inputs):
            args, kwargs = tree_map_only(torch.Tensor, self._stand_in, (args, kwargs))
            inputs = _tensors_in((args, tuple(kwargs.values())))
        if func.__name__.partition(".")[0] in _OVERWRITING and _is_small(inputs[0]):
            with unset_fake_temporarily():
                self._real[inputs[0]] = torch.empty(inputs[0].shape, dtype=inputs[0].dtype)
        if not all(self._is_known(tensor) for tensor in inputs):
            return self._without_values(func, args, kwargs)
        if inputs and torch.Tag.data_dependent_output in func.tags:
            return self._computed(func, args, kwargs)
        if inputs and torch.Tag.dynamic_output_shape in func.tags:
            real = self._computed(func, args, kwargs)
            return tree_map_only(torch.Tensor, self._faked, real)
        output = func(*args, **kwargs)
        made = _tensors_in(output)
        changes = bool(inputs) and func._schema.is_mutable  # noqa: SLF001 (public in all but name)
        if (made or changes) and "empty" not in func.__name__ and all(_is_small(tensor) for tensor in made):
            real = self._computed(func, args, kwargs)
            for fake, value in zip(made, _tensors_in(real), strict=True):
                self._real[fake] = value
        return output

    def _is_beyond(self, func: Any, args: tuple[Any, ...]) -> bool:
        """Nearly all ops: something large goes in and nothing is changed in place, so no value comes of it."""
        first = args[0] if args else None
        large = isinstance(first, FakeTensor) and (first.requires_grad or first.numel() > SMALL)
        return large and not func._schema.is_mutable  # noqa: SLF001 (public in all but name)

    def _is_known(self, tensor: torch.Tensor) -> bool:
        return _is_small(tensor) and tensor in self._real

    def forget(self, *tensors: torch.Tensor) -> None:
        for tensor in tensors:
            self._real.pop(tensor, None)  # type: ignore[no-untyped-call]

    def _without_values(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Something unknown goes in, so what it changes in place is no longer known, nor is any view of the same."""
        if not func._schema.is_mutable:  # noqa: SLF001 (public in all but name)
            return func(*args, **kwargs)
        arguments = func._schema.arguments  # noqa: SLF001 (as above)
        given = {**dict(zip((argument.name for argument in arguments), args, strict=False)), **kwargs}
        for argument in arguments:
            if argument.alias_info is not None and argument.alias_info.is_write:
                self._forget_with_views(_tensors_in(given.get(argument.name)))
        return func(*args, **kwargs)

    def _forget_with_views(self, tensors: list[torch.Tensor]) -> None:
        changed = {_memory(self._real[tensor]) for tensor in tensors if tensor in self._real}
        if changed:
            known = list(self._real.items())  # type: ignore[no-untyped-call]
            self.forget(*(fake for fake, real in known if _memory(real) in changed))

    def _computed(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = tree_map_only(FakeTensor, lambda fake: self._real[fake], (args, kwargs))
        with unset_fake_temporarily(), torch.no_grad():
            return func(*args, **kwargs)

    def _stand_in(self, tensor: torch.Tensor) -> torch.Tensor:
        """A fake in place of a real tensor, always the same: what happens here must not happen to the user's own."""
        if isinstance(tensor, FakeTensor):
            return tensor
        if tensor not in self._stand_ins:
            fake = self._mode.from_tensor(tensor, static_shapes=True)
            self._stand_ins[tensor] = fake
            if _is_small(tensor):
                with unset_fake_temporarily():
                    self._real[fake] = tensor.detach().clone()
        stand_in: torch.Tensor = self._stand_ins[tensor]
        return stand_in

    def _faked(self, real: torch.Tensor) -> torch.Tensor:
        fake = self._mode.from_tensor(real, static_shapes=True)
        self._real[fake] = real
        return fake


def device_of(fake: FakeTensor) -> torch.device:
    """As its mode answers, without the way through all modes that the question takes: autograd asks all the time."""
    return torch.device("meta") if fake.fake_mode.in_kernel_invocation else fake.fake_device


def _tensors_in(value: Any) -> list[torch.Tensor]:
    """Those in nested lists and tuples, which is all that ops take and return."""
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _tensors_in(item)] if isinstance(value, list | tuple) else []


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _is_small(tensor: torch.Tensor) -> bool:
    if tensor.numel() > SMALL or tensor.requires_grad:
        return False
    device = device_of(tensor) if isinstance(tensor, FakeTensor) else tensor.device
    return device.type == "cpu"


def reads_values(error: BaseException | None) -> str | None:
    """The op that needed a value no fake tensor has, if that is why it failed."""
    if isinstance(error, DataDependentOutputException | DynamicOutputShapeException | UnsupportedOperatorException):
        return str(error.func)
    if error is not None and ".numpy() is not supported" in str(error):
        return "Tensor.numpy"
    return None
