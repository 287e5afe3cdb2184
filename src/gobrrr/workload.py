"""A Workload: what the user gives us to run, and how to load one from `FILE.py:NAME`."""

import importlib.util
import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from functools import wraps
from inspect import isfunction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gobrrr.errors import GobrrrError, Missing, ProgramFailed, UsageError
from gobrrr.extras import need

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Workload:
    """A model with its inputs: an inference step; with a loss, a training step; with an optimizer, all of it."""

    model: "torch.nn.Module"
    inputs: Any
    """A mapping is passed by keyword, a tuple or list by position, anything else as the one argument."""
    loss: Callable[[Any], "torch.Tensor"] | None = None
    """From the model's output to a scalar. Without it a trained model's output has `.loss` or is the loss."""
    optimizer: "torch.optim.Optimizer | None" = None
    reset: Callable[[], None] | None = None
    """Undoes what a step leaves behind that we cannot see, such as a filled key-value cache."""
    batch_dim: int = 0

    @property
    def trains(self) -> bool:
        return self.loss is not None or self.optimizer is not None

    def step(self) -> Any:
        """One iteration: its output, or its loss where it trains.

        Keeps no output alive into the backward pass but what autograd saved.
        """
        if not self.trains:
            import torch

            with torch.no_grad():
                result = self._forward()
        else:
            loss = self._loss(self._forward())
            loss.backward()  # type: ignore[no-untyped-call]
            result = loss.detach()
            if self.optimizer is not None:
                self.optimizer.step()
                self.optimizer.zero_grad(set_to_none=True)
            self.model.zero_grad(set_to_none=True)
        if self.reset is not None:
            self.reset()
        return result

    def _forward(self) -> Any:
        if isinstance(self.inputs, Mapping):
            return self.model(**self.inputs)
        if isinstance(self.inputs, tuple | list):
            return self.model(*self.inputs)
        return self.model(self.inputs)

    def _loss(self, output: Any) -> "torch.Tensor":
        loss = self.loss(output) if self.loss is not None else getattr(output, "loss", output)
        if getattr(loss, "numel", lambda: 0)() != 1:
            raise UsageError(
                f"the workload trains but its loss is {_named(loss)}, not a scalar tensor: pass Workload(loss=...)"
            )
        return loss


Step = Callable[[], Any]

_NO_DEVICE = (
    "not linked with support for",
    "not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "No HIP GPUs are available",
)
"""How torch says that a device is not there; it has no error class of its own."""

_NO_MEMORY = ("out of memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
"""How it says that memory is full: by an error class of its own only where its own allocator of a device noticed."""


def load_factory(target: str) -> Callable[[], Any]:
    """The function behind `FILE.py:NAME`; the file's folder is importable, as when Python runs it."""
    file, colon, name = target.rpartition(":")
    path = Path(file)
    if not colon or not file or not name.isidentifier():
        raise UsageError(f"{target!r} is not of the form FILE.py:NAME")
    if not path.is_file():
        raise UsageError(f"there is no file {file}: write FILE.py:NAME with a file of yours")
    need("torch", "torch")
    module = _import_file(path)
    factory = getattr(module, name, None)
    if not callable(factory):
        own = {n: v for n, v in vars(module).items() if getattr(v, "__module__", "") == module.__name__}
        offered = ", ".join(n for n, v in own.items() if isfunction(v) and not n.startswith("_"))
        raise UsageError(f"{file} has no function {name!r}; it has: {offered or 'none'}")
    return _as_a_program(factory, path)


def made_step(factory: Callable[[], Any]) -> tuple[Step, Workload | None]:
    """Calls the factory: the step to run, and the workload behind it unless it gave a bare step."""
    made = user_code(factory, "the factory")
    if isinstance(made, Workload):
        return made.step, made
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        workload = Workload(*made)
        return workload.step, workload
    if callable(made) and not hasattr(made, "named_modules"):
        return made, None
    raise UsageError(
        f"the factory returned {_named(made)}: return a gobrrr.Workload, a (model, inputs) pair or a step to call"
    )


def user_code(call: Callable[[], Any], what: str) -> Any:
    """Runs the user's code: what it raises becomes a ProgramFailed with the line where it happened.

    What it prints goes to stderr, because stdout is ours, and where it would leave the process it has failed.
    """
    with stdout_spared():
        return blamed(call, what)


def blamed(call: Callable[[], Any], what: str) -> Any:
    """The same, and what it prints goes where it goes."""
    try:
        return call()
    except GobrrrError:
        raise
    except (Exception, SystemExit) as error:
        if any(sign in str(error) for sign in _NO_DEVICE):
            raise Missing(
                f"{what} asks for a device that is not here{where(error)}: {_first_line(error)}; let it choose "
                "by torch.accelerator.current_accelerator()"
            ) from error
        if isinstance(error, MemoryError) or any(sign in str(error) for sign in _NO_MEMORY):
            raise Missing(
                f"{what} ran out of memory{where(error)}: make the batch or the model smaller, or free some memory "
                "(a copy of what the step changes is kept meanwhile)"
            ) from error
        raise ProgramFailed(f"{what} raised {type(error).__name__}{where(error)}: {_first_line(error)}") from error


@contextmanager
def stdout_spared() -> Iterator[None]:
    """What is written to stdout meanwhile, by Python, C or a child process, goes to stderr."""
    sys.stdout.flush()
    own = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(own, 1)
        os.close(own)


@contextmanager
def warned_once() -> Iterator[None]:
    """What a program warns of, however often it is run, and though Python forgets what it has shown each time that
    somebody catches warnings.
    """
    shown: set[tuple[type[Warning], str]] = set()
    show = warnings.showwarning

    def once(message: Warning | str, category: type[Warning], *where: Any, **options: Any) -> None:
        if (category, str(message)) not in shown:
            shown.add((category, str(message)))
            show(message, category, *where, **options)

    with warnings.catch_warnings():
        warnings.showwarning = once
        yield


def _import_file(path: Path) -> Any:
    """Under a name of its own, for the user's `profile.py` must not stand in for the library's."""
    name = f"_gobrrr_user_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    sys.modules[name] = module
    loader = spec.loader
    try:
        user_code(_as_a_program(lambda: loader.exec_module(module), path), f"{path}")
    except GobrrrError:
        del sys.modules[name]
        raise
    return module


def _as_a_program(call: Callable[[], Any], path: Path) -> Callable[[], Any]:
    """Called with its own name as the only word of the command line: ours say nothing to it."""

    @wraps(call)
    def called() -> Any:
        words = sys.argv
        sys.argv = [str(path)]
        try:
            return call()
        finally:
            sys.argv = words

    return called


def where(error: BaseException) -> str:
    """` at file.py:12`, the innermost frame of the user's own code that we can tell."""
    own = [frame for frame in traceback.extract_tb(error.__traceback__) if _is_users(frame.filename)]
    return f" at {Path(own[-1].filename).name}:{own[-1].lineno}" if own else ""


def _is_users(filename: str) -> bool:
    path = Path(filename)
    installed = {"site-packages", "dist-packages"}.intersection(path.parts)
    elsewhere = any(path.is_relative_to(home) for home in (Path(__file__).parent, sysconfig.get_path("stdlib")))
    return not installed and not elsewhere and not filename.startswith("<")


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else "no message"


def _named(value: Any) -> str:
    if value is None:
        return "nothing"
    shape = getattr(value, "shape", None)
    name = type(value).__name__ if shape is None else f"tensor of shape {tuple(shape)}"
    return f"{'an' if name[0] in 'aeiouAEIOU' else 'a'} {name}"
