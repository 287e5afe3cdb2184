"""Kernels that torch.compile generated: which there are, and being told when one is called.

The one file that knows Inductor's insides.

A compiled graph is a Python module that calls its kernels by global names: `cpp_fused_add_0(x, y)` on a CPU,
`triton_poi_fused_add_0.run(x, y, n, stream=s)` on a GPU. While watched, those names hold stand-ins.
"""

import re
import sys
from ast import literal_eval
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

_DEFINED = re.compile(r"^(\w+) = async_compile\.(\w+)\(", re.MULTILINE)
_CPP_TYPES = re.compile(r"\s*(\[[^\]]*\])")
_CPP_PARAMETERS = re.compile(r"kernel\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Generated:
    """A call of a generated kernel: what it was given to read and to write."""

    name: str
    read: tuple[torch.Tensor, ...]
    written: tuple[torch.Tensor, ...]


Told = Callable[[Generated], AbstractContextManager[object]]


@dataclass(frozen=True, slots=True)
class _Kernel:
    """Of each argument, whether it is read and whether it is written."""

    name: str
    access: tuple[tuple[bool, bool], ...]

    def called(self, args: tuple[Any, ...]) -> Generated:
        used = [(arg, *access) for arg, access in zip(args, self.access, strict=False) if isinstance(arg, torch.Tensor)]
        return Generated(
            self.name,
            tuple(tensor for tensor, reads, _ in used if reads),
            tuple(tensor for tensor, _, writes in used if writes),
        )


class _StandIn:
    """In a kernel's place: tells, then passes the call on, whichever of the two ways it is called."""

    def __init__(self, kernel: Any, description: _Kernel, told: Told) -> None:
        self._kernel, self._description, self._told = kernel, description, told

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with self._told(self._description.called(args)):
            return self._kernel(*args, **kwargs)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        with self._told(self._description.called(args)):
            return self._kernel.run(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._kernel, name)


def has_generated() -> bool:
    """Whether anything was compiled in this process."""
    return bool(_modules())


def generated_modules() -> int:
    """How many there are: a step that makes more was compiled meanwhile."""
    return len(_modules())


@contextmanager
def watched(told: Told, prefix: str = "") -> Iterator[None]:
    """Every call of a generated kernel, of those whose name begins so, passes through `told`.

    Afterwards the modules are as they were. One that is compiled meanwhile is not watched.
    """
    with ExitStack() as stack:
        for module in _modules():
            for kernel in _kernels_of(module.__file__ or ""):
                if kernel.name in vars(module) and kernel.name.startswith(prefix):
                    stack.callback(setattr, module, kernel.name, vars(module)[kernel.name])
                    setattr(module, kernel.name, _StandIn(vars(module)[kernel.name], kernel, told))
        yield


def annotated() -> AbstractContextManager[None]:
    """Generated CPU kernels appear in a profile by their names, as Triton's do by themselves."""
    return watched(_annotation, "cpp_")


def _annotation(call: Generated) -> AbstractContextManager[object]:
    return torch._C._profiler._RecordFunctionFast(call.name)  # noqa: SLF001 (what Inductor itself uses)


def static_shapes() -> AbstractContextManager[object]:
    """Other sizes are compiled for themselves: else one graph for all sizes would take over the one that there is."""
    if "torch._dynamo" not in sys.modules:
        return nullcontext()
    from torch._dynamo import config

    return config.patch(automatic_dynamic_shapes=False)  # type: ignore[no-any-return]


@contextmanager
def ungraphed() -> Iterator[None]:
    """What `mode="reduce-overhead"` would replay as a CUDA graph runs kernel by kernel, as in its warm-up."""
    if not torch.cuda.is_available() or not has_generated():
        yield
        return
    from torch._inductor.cudagraph_trees import CUDAGraphTreeManager

    def run(self: Any, new_inputs: list[Any], function_id: Any) -> Any:
        return self.ids_to_funcs[function_id].model(new_inputs)

    graphed = CUDAGraphTreeManager._run  # noqa: SLF001 (functions hold on to `run`, which asks for this one)
    CUDAGraphTreeManager._run = run  # type: ignore[method-assign]  # noqa: SLF001
    try:
        yield
    finally:
        CUDAGraphTreeManager._run = graphed  # type: ignore[method-assign]  # noqa: SLF001


def _modules() -> list[ModuleType]:
    if "torch._inductor.codecache" not in sys.modules:  # nothing was compiled, and the import is slow
        return []
    from torch._inductor.codecache import PyCodeCache

    return [module for module in PyCodeCache.modules if hasattr(module, "call")]


@cache
def _kernels_of(file: str) -> tuple[_Kernel, ...]:
    """Nothing where the text is gone, as from a temporary folder that was cleaned."""
    try:
        return tuple(_kernels(Path(file).read_text(encoding="utf-8")))
    except OSError:
        return ()


def _kernels(source: str) -> Iterator[_Kernel]:
    """From `name = async_compile.kind(…)`, in the module's own text."""
    for defined in _DEFINED.finditer(source):
        name, kind = defined.groups()
        behind = source[defined.end() :]
        if kind == "triton":
            yield _Kernel(name, _triton_access(name, behind))
        elif kind.startswith("cpp"):
            yield _Kernel(name, _cpp_access(behind))


def _cpp_access(source: str) -> tuple[tuple[bool, bool], ...]:
    """A list of C types comes first: what is const is read; what is not is written, and read if it is updated."""
    listed, parameters = _CPP_TYPES.match(source), _CPP_PARAMETERS.search(source)
    types = literal_eval(listed[1]) if listed else []
    names = [parameter.split()[-1] for parameter in parameters[1].split(",")] if parameters and parameters[1] else []
    if len(names) != len(types):
        names = [""] * len(types)
    return tuple(
        (kind.startswith("const") or name.startswith("in_out_"), not kind.startswith("const"))
        for kind, name in zip(types, names, strict=True)
    )


def _triton_access(name: str, source: str) -> tuple[tuple[bool, bool], ...]:
    """The kernel's parameters, in the order of a call: in_ptr0, in_out_ptr0, out_ptr0; a template's arg_A."""
    parameters = re.search(rf"def {name}\(([^)]*)\)|def triton_\(([^)]*)\)", source)
    listed = ((parameters[1] or parameters[2]) if parameters else "").split(",")
    return tuple(
        (not parameter.strip().startswith("out_"), parameter.strip().startswith(("out_", "in_out_", "ws_")))
        for parameter in listed
    )
