"""Listening to a program: its calls of models, its backward passes, its optimizers' steps.

Torch's global hooks only tell what there is. Each model that is called by the program itself, and each optimizer, is
then listened to alone: hooks on all modules would slow every layer and make a compiler compile anew, and a hook of the
optimizer runs in mid-step, where nothing may be hooked or profiled.
"""

import functools
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import ExitStack, nullcontext
from types import MethodType
from typing import Any, TypeAlias

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook

from gobrrr.integrations.period import Event, Kind
from gobrrr.work.padding import MASK

Shape: TypeAlias = tuple[tuple[int, ...], ...]


class _Inside(threading.local):
    """What runs in this thread: events within others are part of them."""

    depth = 0
    modules = 0
    backward = False


class _Hook:
    """On a module of the user's, where it is copied and saved with it: the copy is deaf and needs nothing of ours."""

    def __init__(self, call: Callable[..., None]) -> None:
        self._call = call

    def __call__(self, *args: Any) -> None:
        self._call(*args)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (nullcontext(), "__exit__")


class Watch:
    """Tells events as they end, until it is closed; then nothing is left in the program but what others hold on to,
    and that passes calls on.
    """

    def __init__(self, told: Callable[[Event], None]) -> None:
        self._told = told
        self._inside = _Inside()
        self._numbers: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        """Of models, compiled functions and captured graphs, in the order in which they appeared."""
        self._optimizers: weakref.WeakKeyDictionary[torch.optim.Optimizer, int] = weakref.WeakKeyDictionary()
        self._hooks, self._modules = ExitStack(), ExitStack()
        self._closed = False
        self.backwards = 0
        """So many passes, also within an optimizer's step."""
        self.shapes: list[Shape] = []
        """Of what the models were called with."""
        self.inputs: Mapping[str, Any] = {}
        """By name, of the latest call that gave a mask of its padding; held until the next one."""
        for handle in (
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
        ):
            self._modules.callback(handle.remove)
        self._hooks.callback(register_optimizer_step_post_hook(self._adopt_optimizer).remove)
        self._replace(torch.autograd, "backward", self._backward)
        self._replace(torch, "compile", self._compile)
        self._replace(torch.cuda.CUDAGraph, "replay", self._replay)

    def narrow(self) -> None:
        """Follows only the models known by now."""
        self._modules.close()

    def close(self) -> None:
        self._closed, self.inputs = True, {}
        self._modules.close()
        self._hooks.close()

    def _replace(self, owner: Any, name: str, stand_in: Callable[..., Any]) -> None:
        original = getattr(owner, name)

        @functools.wraps(original)
        def called(*args: Any, **kwargs: Any) -> Any:
            return (original if self._closed else functools.partial(stand_in, original))(*args, **kwargs)

        def put_back() -> None:
            if getattr(owner, name) is called:
                setattr(owner, name, original)

        setattr(owner, name, called)
        self._hooks.callback(put_back)

    def _tell(self, event: Event) -> None:
        if not self._closed and not self._inside.depth:
            self._told(event)

    def _backward(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        if self._inside.backward:  # a checkpoint's own
            return original(*args, **kwargs)  # type: ignore[no-any-return]
        self._inside.backward = True
        try:
            self._within(original, *args, **kwargs)
        finally:
            self._inside.backward = False
        self.backwards += 1
        self._tell(Event(Kind.BACKWARD))
        return None

    def _within(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._inside.depth += 1
        try:
            return call(*args, **kwargs)
        finally:
            self._inside.depth -= 1

    def _compile(self, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """From now on nothing may hang on all modules: it would be compiled too, and again once it is gone."""
        self.narrow()
        made = original(*args, **kwargs)
        if isinstance(made, torch.nn.Module):
            self._adopt_model(made)
            return made
        return made if args[:1] in ((), (None,)) else self._adopt_function(made)

    def _adopt_function(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """What was compiled and is no module: a function, or the calls of one that compiles itself."""
        number = self._number(function)

        @functools.wraps(function)
        def called(*args: Any, **kwargs: Any) -> Any:
            if torch.compiler.is_compiling() or self._closed:  # part of something larger, which shall stay whole
                return function(*args, **kwargs)
            result = self._within(function, *args, **kwargs)
            self._called(number, args, kwargs)
            return result

        return called

    def _replay(self, original: Callable[..., Any], graph: torch.cuda.CUDAGraph) -> None:
        self._within(original, graph)
        self._called(self._number(graph), (), {})

    def _number(self, called: Any) -> int:
        return self._numbers.setdefault(called, len(self._numbers))

    def _called(self, number: int, args: Any, kwargs: Mapping[str, Any]) -> None:
        self.shapes.append(shape_of((args, kwargs)))
        if MASK in kwargs:
            self.inputs = {MASK: kwargs[MASK]}
        self._tell(Event(Kind.FORWARD, number))

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        del module, args
        self._inside.modules += 1

    def _leave_module(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        del args, output
        self._inside.modules -= 1
        if not self._inside.modules and not self._inside.backward:
            self._adopt_model(module)

    def _adopt_model(self, model: torch.nn.Module) -> None:
        if model in self._numbers:
            return
        number = self._number(model)

        def enter(*_: Any) -> None:
            self._inside.depth += 1

        def leave(_model: Any, args: Any, kwargs: Any, output: Any) -> None:
            self._inside.depth -= 1
            if output is not None:  # as it is where the call raised
                self._called(number, args, kwargs)

        for handle in (
            model.register_forward_pre_hook(_Hook(enter)),
            model.register_forward_hook(_Hook(leave), with_kwargs=True, always_call=True),
        ):
            self._hooks.callback(handle.remove)

    def _adopt_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        """Its `step` is listened to from the next call on, where it has returned."""
        del args, kwargs
        if optimizer in self._optimizers:
            return
        number = self._optimizers[optimizer] = len(self._optimizers)
        original, had_own = optimizer.step, "step" in vars(optimizer)  # a scheduler wraps it too

        @functools.wraps(original)
        def step(_optimizer: Any, *args: Any, **kwargs: Any) -> Any:
            if self._closed:
                return original(*args, **kwargs)
            result = self._within(original, *args, **kwargs)
            self._tell(Event(Kind.OPTIMIZER, number))
            return result

        vars(optimizer)["step"] = MethodType(step, optimizer)
        self._hooks.callback(_put_back, weakref.ref(optimizer), weakref.ref(step), had_own=had_own)


def _put_back(known: weakref.ref[torch.optim.Optimizer], ours: weakref.ref[Any], *, had_own: bool) -> None:
    """The optimizer's own `step`, if both live and nobody has put his over ours."""
    optimizer, step = known(), ours()
    if optimizer is None or step is None or getattr(optimizer.step, "__func__", None) is not step:
        return
    if had_own:
        vars(optimizer)["step"] = step.__wrapped__  # type: ignore[union-attr]
    else:
        del vars(optimizer)["step"]


def shape_of(value: Any) -> Shape:
    """The shapes of all tensors in there."""
    if isinstance(value, torch.Tensor):
        return (tuple(value.shape),)
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, list | tuple):
        return tuple(shape for part in value for shape in shape_of(part))
    return ()
