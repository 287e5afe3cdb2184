"""Where in the user's program an op comes from: its phase, its module, its source line."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import CodeType, FrameType, TracebackType
from typing import Any, Self

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from gobrrr.work import autograd_nodes
from gobrrr.work.op import Phase

_TORCH = f"{Path(torch.__file__).parent}{os.sep}"
_OURS = tuple(f"{Path(__file__).parents[1] / part}{os.sep}" for part in ("work", "integrations"))
_WORKLOAD = str(Path(__file__).parents[1] / "workload.py")
_COMPILED = "_orig_mod"
"""Where `torch.compile` keeps the module that it wraps; no part of a path that its author would know."""
_OPTIMIZERS = f"{Path(_TORCH, 'optim')}{os.sep}"
_CHECKPOINT = str(Path(_TORCH, "utils", "checkpoint.py"))


@dataclass(frozen=True, slots=True)
class Place:
    phase: Phase
    module: str
    source: str | None
    recomputed: bool = False


@dataclass(slots=True)
class Whereabouts:
    """Follows modules, backward passes and optimizers through torch's global hooks while it is entered.

    A backward op takes module and line from the forward op whose autograd node runs. Ops after a backward pass and
    before the optimizer or the next forward (clipping) are of the phase `other`.
    """

    has_hooks: bool = True
    """Without, paths stay empty and optimizers are known by their frames: a compiler compiles anew if hooks appear."""
    _paths: dict[int, str] = field(default_factory=dict)
    _roots: list[torch.nn.Module] = field(default_factory=list)
    """Held so that no other module takes over an id."""
    _stack: list[str] = field(default_factory=list)
    _made_by: dict[int, Place] = field(default_factory=dict)
    """The place of the forward op that made each autograd node."""
    _owner: dict[int, str] = field(default_factory=dict)
    """Path of the module that owns each parameter."""
    _optimizing: list[bool] = field(default_factory=list)
    """Optimizers whose step has begun, and whether that was within a backward pass."""
    _after_backward: bool = False
    _nodes_then: int = -1
    """Autograd nodes made when the last backward op ran: one more, and a new forward has begun."""
    _hooks: ExitStack = field(default_factory=ExitStack)

    def __enter__(self) -> Self:
        if not self.has_hooks:
            return self
        for handle in (
            register_module_forward_pre_hook(self._enter_module),
            register_module_forward_hook(self._leave_module, always_call=True),
            register_optimizer_step_pre_hook(self._enter_optimizer),
            register_optimizer_step_post_hook(self._leave_optimizer),
        ):
            self._hooks.callback(handle.remove)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._hooks.close()

    def place(self) -> Place:
        """Where the op that is being dispatched right now comes from."""
        if autograd_nodes.in_backward() and not self._optimizes():
            self._after_backward, self._nodes_then = True, autograd_nodes.made_sequence_number()
            return self._place_in_backward()
        if torch.is_grad_enabled() and autograd_nodes.made_sequence_number() > self._nodes_then:
            self._after_backward = False
        place = Place(self._phase(), self._stack[-1] if self._stack else "", user_line())
        self._made_by.setdefault(autograd_nodes.made_sequence_number(), place)
        return place

    def _optimizes(self) -> bool:
        """Not while a closure that it was given takes its passes, forward and backward."""
        if torch.is_grad_enabled():
            return False
        return self._optimizing[-1:] == [autograd_nodes.in_backward()] or (
            not self.has_hooks and not autograd_nodes.in_backward() and _called_from(_OPTIMIZERS)
        )

    def _phase(self) -> Phase:
        if self._optimizes():
            return Phase.OPTIMIZER
        return Phase.OTHER if self._after_backward else Phase.FORWARD

    def _place_in_backward(self) -> Place:
        if torch.is_grad_enabled() and _called_from(_CHECKPOINT):
            place = Place(Phase.BACKWARD, self._stack[-1] if self._stack else "", user_line(), recomputed=True)
            self._made_by.setdefault(autograd_nodes.made_sequence_number(), place)
            return place
        node = autograd_nodes.running_node()
        if node is None:
            return Place(Phase.BACKWARD, "", None)
        if (parameter := getattr(node, "variable", None)) is not None:
            return Place(Phase.BACKWARD, self._owner.get(id(parameter), ""), None)
        made_by = self._made_by.get(autograd_nodes.sequence_number(node))
        return Place(Phase.BACKWARD, made_by.module if made_by else "", made_by.source if made_by else None)

    def _enter_module(self, module: torch.nn.Module, args: Any) -> None:
        del args
        if id(module) not in self._paths:
            self._adopt(module)
        if not self._stack and not autograd_nodes.in_backward():
            self._after_backward = False
        self._stack.append(self._paths[id(module)])

    def _leave_module(self, module: torch.nn.Module, args: Any, output: Any) -> None:
        del module, args, output
        self._stack.pop()

    def _adopt(self, root: torch.nn.Module) -> None:
        """A module seen for the first time and in no known one is a root, and names all that it holds."""
        prefix = f"{self._stack[-1]}." if self._stack else ""
        name = f"{prefix}{type(getattr(root, _COMPILED, root)).__name__}"
        self._roots.append(root)
        for path, module in root.named_modules():
            full = ".".join((name, *(part for part in path.split(".") if part and part != _COMPILED)))
            self._paths.setdefault(id(module), full)
            for parameter in module.parameters(recurse=False):
                self._owner.setdefault(id(parameter), full)

    def _enter_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        self._optimizing.append(autograd_nodes.in_backward())

    def _leave_optimizer(self, optimizer: torch.optim.Optimizer, args: Any, kwargs: Any) -> None:
        del optimizer, args, kwargs
        self._optimizing.pop()
        self._after_backward = False


def user_line(frame: FrameType | None = None) -> str | None:
    """`file.py:line` of the nearest frame, from here or from that one on, that is neither torch's nor ours.

    None if a Workload's own step called.
    """
    frame = frame or sys._getframe(1)  # noqa: SLF001 (the way to a frame without building the stack)
    while frame is not None:
        if frame.f_code.co_filename == _WORKLOAD:
            return None
        if not _is_machinery(frame.f_code):
            return line_of(frame)
        frame = frame.f_back
    return None


def line_of(frame: FrameType) -> str:
    return f"{_shown(frame.f_code.co_filename)}:{frame.f_lineno}"


def _called_from(filename: str) -> bool:
    frame: FrameType | None = sys._getframe(1)  # noqa: SLF001 (as above)
    while frame is not None:
        if frame.f_code.co_filename.startswith(filename):
            return True
        frame = frame.f_back
    return False


@cache
def _is_machinery(code: CodeType) -> bool:
    name = code.co_filename
    return name.startswith((_TORCH, *_OURS, "<")) or name.endswith("contextlib.py")


@cache
def _shown(filename: str) -> str:
    """Below the working folder or the site packages, as short as it stays plain where it is."""
    path = Path(filename)
    for base in (*(Path(entry) for entry in sys.path if entry.endswith("site-packages")), Path.cwd()):
        if path.is_relative_to(base):
            return str(path.relative_to(base))
    return filename
