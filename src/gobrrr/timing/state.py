"""The user's objects as they were, bit for bit: remembered before our steps run, put back after.

Whatever a step changes it must be able to reach. So we walk from the step (its closure, defaults, bound self, partial
arguments, the globals that its code names) or from the workload's fields through containers and objects, and
remember two kinds of thing:

    bindings    what a dict, list, set, attribute, closure cell or global refers to: which parameter a module has,
                which state an optimizer, whether a module trains, what a learning rate is. They are put back by
                reference, in place, so that every object stays the same object, and only where they changed.
    contents    the bytes of every tensor, copied once per storage however many tensors share it (tied weights,
                views, flat parameters) and written back into the same storage: no address moves, no rounding, no
                version counter.

Parameters, buffers, gradients, optimizer state that was absent before, schedulers, gradient scalers and key-value
caches are then no special cases. Random generators and torch's switches, which no step holds, are remembered beside.

Beyond reach, and so not put back: items drawn from an iterator; tensors that only C++ or a CUDA graph knows; globals
that are used by methods and library functions which the step calls; numpy arrays; files; the grad_fn of a view that a
step made part of its graph; the pattern of a compressed sparse tensor. `Kept.beyond` names those that the walk has met;
`Workload.reset` is for the rest and is called at the end, even after a step that raised. Version counters are not
wound back: a graph recorded inside would pass for one that is still valid.
"""

import dis
import random
import signal
import sys
import threading
import warnings
from collections import OrderedDict, UserDict, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from io import IOBase
from types import (
    BuiltinMethodType,
    CellType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
    SimpleNamespace,
)
from typing import TYPE_CHECKING, Any, TypeAlias

from gobrrr import units
from gobrrr.errors import Missing, UsageError
from gobrrr.machine.cpu_state import free_host_bytes
from gobrrr.machine.memory import SHARE_OF_FREE
from gobrrr.workload import Step, Workload, user_code

if TYPE_CHECKING:
    import torch

PutBack: TypeAlias = Callable[[], object]

SHARE_OF_HOST = 0.9
"""Of the host's free memory, the last resort: past that the kernel would end somebody's program, and not say so."""

_INERT = (NoneType, bool, int, float, complex, str, bytes, type, ModuleType, CodeType)
"""Holds nothing that a step could change. Modules and classes are not searched: everything hangs on them."""

_TORCH_HOMES = ("torch.nn", "torch.optim", "torch.amp", "torch.cuda.amp")
"""Where torch keeps what belongs to the user. Its compilers, profilers and data loaders keep their own counsel."""


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered, for whoever wants to tell."""

    copied_bytes: int
    device_bytes: int
    """Of these, what lies on an accelerator: part of any peak of memory that is measured meanwhile."""
    beyond: tuple[str, ...]
    """What the step holds and nobody can put back, one phrase each."""


@contextmanager
def preserved(step: Workload | Step) -> Iterator[Kept]:
    """Everything the step reaches is afterwards what it was, also if the step raises or is interrupted.

    Give it the user's own step: what a wrapper of ours has collected would be put back too. If there is no room for
    the copies it raises Missing, and nothing has been changed.
    """
    things = reached(step)
    bindings = [put_back for thing in things for put_back in _bindings(thing)]
    tensors = [_Tensors.remembered(group) for group in _tensors_by_device(things)]
    everything = [*_switches(), *_global_generators(), *bindings, *(group.put_back for group in tensors)]
    with ExitStack() as stack:
        stack.callback(_put_all_back, everything)
        stack.callback(_reset, step)
        yield _kept(tensors, things)


def _kept(tensors: Iterable["_Tensors"], things: Iterable[object]) -> Kept:
    copies = [copy.content for group in tensors for copy in group.copies]
    on_device = [copy for copy in copies if copy.device.type != "cpu"]
    return Kept(sum(copy.numel() for copy in copies), sum(copy.numel() for copy in on_device), _beyond(things))


def _reset(step: Workload | Step) -> None:
    owner = getattr(step, "__self__", step)
    if isinstance(owner, Workload) and owner.reset is not None:
        user_code(owner.reset, "the workload's reset")


def _put_all_back(everything: Iterable[PutBack]) -> None:
    """In this order and to the end, whatever one of them raises: a second ^C waits, and a device that is broken
    comes last.
    """
    with _interrupts_deferred(), ExitStack() as stack:
        for put_back in reversed(list(everything)):
            stack.callback(put_back)


@contextmanager
def _interrupts_deferred() -> Iterator[None]:
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGINT) is None:
        yield
        return
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _frame: caught.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        if caught:
            signal.raise_signal(signal.SIGINT)


# What a step reaches


def reached(root: object) -> list[object]:
    """Everything that can be reached from here, each once, itself first."""
    found, todo = {id(root): root}, [root]
    while todo:
        for held in _held(todo.pop()):
            if not isinstance(held, _INERT) and id(held) not in found:
                found[id(held)] = held
                todo.append(held)
    return list(found.values())


def _held(thing: object) -> Iterator[object]:
    """What this one refers to."""
    if isinstance(thing, dict):
        yield from list(thing)
        yield from list(thing.values())
    elif isinstance(thing, list | tuple | set | frozenset | deque):
        yield from list(thing)
    elif isinstance(thing, FunctionType):
        yield from (thing.__closure__, thing.__defaults__, thing.__kwdefaults__)
        yield from (thing.__globals__.get(name) for name in _globals_named(thing))
    elif isinstance(thing, MethodType):
        yield from (thing.__self__, thing.__func__)
    elif isinstance(thing, BuiltinMethodType):
        yield thing.__self__
    elif isinstance(thing, partial):
        yield from (thing.func, thing.args, thing.keywords)
    elif isinstance(thing, CellType):
        yield _content(thing)
    elif _is_tensor(thing):
        yield from _held_by_tensor(thing)
    if _is_open(thing):
        yield getattr(thing, "__dict__", None)
        yield from (_slot(thing, descriptor) for descriptor in _slots(thing))


def _is_open(thing: object) -> bool:
    """Has attributes that are the user's business; the standard library's and torch's inner objects are left alone."""
    if isinstance(thing, FunctionType | partial | SimpleNamespace | UserDict) or _is_tensor(thing):
        return True
    home = type(thing).__module__
    if _root(home) != "torch":
        return _root(home) not in sys.stdlib_module_names
    return home.startswith(_TORCH_HOMES) or _is_module(thing)


def _root(module: str | None) -> str:
    return (module or "").partition(".")[0]


def _is_tensor(thing: object) -> bool:
    import torch

    return isinstance(thing, torch.Tensor)


def _is_module(thing: object) -> bool:
    import torch

    return isinstance(thing, torch.nn.Module)


def _globals_named(function: FunctionType) -> set[str]:
    """The globals that the user's code and the functions inside it read or write."""
    if _root(function.__module__) in {"torch", *sys.stdlib_module_names}:
        return set()
    return _globals_of(function.__code__)


def _globals_of(code: CodeType) -> set[str]:
    own = {line.argval for line in dis.get_instructions(code) if line.opname.endswith("_GLOBAL")}
    return own.union(*(_globals_of(inner) for inner in code.co_consts if isinstance(inner, CodeType)))


_EMPTY = object()
"""Stands for no value where None is one."""


def _content(cell: CellType) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _slots(thing: object) -> Iterator[MemberDescriptorType]:
    for kind in type(thing).__mro__:
        if "__slots__" in vars(kind):
            yield from (value for value in vars(kind).values() if isinstance(value, MemberDescriptorType))


def _slot(thing: object, descriptor: MemberDescriptorType) -> object:
    try:
        return descriptor.__get__(thing)
    except AttributeError:
        return _EMPTY


def _held_by_tensor(tensor: Any) -> Iterator[object]:
    """A leaf's gradient, and the tensors that a wrapper is made of."""
    if tensor.is_leaf:
        yield tensor.grad
    if _is_wrapper(tensor):
        yield from (getattr(tensor, name) for name in tensor.__tensor_flatten__()[0])


def _beyond(things: Iterable[object]) -> tuple[str, ...]:
    names = (_unrestorable(thing) for thing in things)
    return tuple(dict.fromkeys(name for name in names if name is not None))


def _unrestorable(thing: object) -> str | None:
    if type(thing).__name__ == "CUDAGraph":
        return "the tensors of a CUDA graph"
    if _is_open(thing) or isinstance(thing, IOBase) or not hasattr(type(thing), "__next__"):
        return None
    return f"what was drawn from a {type(thing).__name__.lstrip('_')}"


# Bindings: put back by reference, and only where they changed


def _bindings(thing: object) -> Iterator[PutBack]:
    """How to undo what can happen to this very object."""
    if isinstance(thing, dict):
        yield _dict(thing)
    elif isinstance(thing, list):
        yield _if_changed(lambda: list(thing), partial(thing.__setitem__, slice(None)))
    elif isinstance(thing, set | deque):
        yield _if_changed(lambda: list(thing), partial(_refill, thing))
    elif isinstance(thing, CellType):
        yield _if_changed(lambda: [_content(thing)], partial(_set_cell, thing))
    elif isinstance(thing, FunctionType):
        yield from (_global(thing.__globals__, name) for name in _globals_named(thing))
    elif (generator := _generator(thing)) is not None:
        yield generator
    if _is_open(thing):
        yield from (_slot_binding(thing, descriptor) for descriptor in _slots(thing))


def _if_changed(read: Callable[[], list[Any]], write: Callable[[list[Any]], object]) -> PutBack:
    """By identity, in order: what is equal but another object is a change."""
    before = read()

    def put_back() -> None:
        now = read()
        if len(now) != len(before) or any(one is not other for one, other in zip(now, before, strict=True)):
            write(before)

    return put_back


def _dict(thing: dict[Any, Any]) -> PutBack:
    """By the base class's own methods: what a subclass makes of them is not what it holds."""
    base = OrderedDict if isinstance(thing, OrderedDict) else dict
    items = list(thing.items())

    def refill(_flat: list[Any]) -> None:
        base.clear(thing)
        base.update(thing, items)

    return _if_changed(lambda: [*thing.keys(), *thing.values()], refill)


def _refill(thing: set[Any] | deque[Any], before: list[Any]) -> None:
    thing.clear()
    (thing.update if isinstance(thing, set) else thing.extend)(before)


def _set_cell(cell: CellType, before: list[Any]) -> None:
    if before[0] is _EMPTY:
        del cell.cell_contents
    else:
        cell.cell_contents = before[0]


def _global(namespace: dict[str, Any], name: str) -> PutBack:
    def write(before: list[Any]) -> None:
        if before[0] is _EMPTY:
            del namespace[name]
        else:
            namespace[name] = before[0]

    return _if_changed(lambda: [namespace.get(name, _EMPTY)], write)


def _slot_binding(thing: object, descriptor: MemberDescriptorType) -> PutBack:
    def write(before: list[Any]) -> None:
        if before[0] is _EMPTY:
            descriptor.__delete__(thing)
        else:
            descriptor.__set__(thing, before[0])

    return _if_changed(lambda: [_slot(thing, descriptor)], write)


# Generators: those the step holds, and those that belong to everybody


def _generator(thing: object) -> PutBack | None:
    import torch

    if isinstance(thing, torch.Generator):
        return partial(thing.set_state, thing.get_state())
    if isinstance(thing, random.Random):
        return partial(thing.setstate, thing.getstate())
    if (bits := getattr(thing, "bit_generator", None)) is not None and _root(type(thing).__module__) == "numpy":
        return partial(setattr, bits, "state", bits.state)
    return None


def _global_generators() -> Iterator[PutBack]:
    """Everybody's: numpy's only where it has been imported, an accelerator's only where it has been started."""
    import torch

    yield partial(random.setstate, random.getstate())
    yield partial(torch.set_rng_state, torch.get_rng_state())
    if (numpy_random := sys.modules.get("numpy.random")) is not None:
        yield partial(numpy_random.set_state, numpy_random.get_state())
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    module: Any = None if accelerator is None else torch.get_device_module(accelerator)
    if getattr(module, "is_initialized", bool)() and hasattr(module, "get_rng_state_all"):
        yield partial(module.set_rng_state_all, module.get_rng_state_all())


# Switches: how torch computes, for everybody


def _switches() -> Iterator[PutBack]:
    """Flags that change what the user's next line computes, or how fast; written only where they differ."""
    import torch.utils.deterministic
    from torch.backends import cuda, cudnn, mkldnn

    yield from (
        _switch(torch.is_grad_enabled, torch.set_grad_enabled),
        _switch(torch.get_default_dtype, torch.set_default_dtype),
        _switch(torch.get_num_threads, torch.set_num_threads),
        _switch(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode),
        _switch(
            lambda: (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
            lambda on: torch.set_anomaly_enabled(*on),
        ),
        _switch(cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
        _switch(cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
        _switch(cuda.math_sdp_enabled, cuda.enable_math_sdp),
        _switch(cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    )
    for owner, name in (
        *((cudnn, name) for name in ("enabled", "benchmark", "benchmark_limit", "deterministic")),
        *((mkldnn, name) for name in ("enabled", "deterministic")),
        (cuda.matmul, "allow_fp16_reduced_precision_reduction"),
        (cuda.matmul, "allow_bf16_reduced_precision_reduction"),
        (cuda.matmul, "allow_fp16_accumulation"),
        (torch.utils.deterministic, "fill_uninitialized_memory"),
    ):
        if hasattr(owner, name):  # not every version has each
            yield _switch(partial(getattr, owner, name), partial(setattr, owner, name))
    yield _fp32_precisions()


def _switch(read: Callable[[], Any], write: Callable[[Any], object]) -> PutBack:
    before = read()

    def put_back() -> None:
        if read() != before:
            write(before)

    return put_back


_FP32_LAYERS = (
    ("generic", "all"),
    *((backend, op) for backend in ("cuda", "mkldnn") for op in ("all", "matmul", "conv", "rnn")),
)
"""Torch keeps one fp32 precision for each; a "none" inherits from (backend, all) and that from (generic, all)."""


def _fp32_precisions() -> PutBack:
    """The settings of each layer, and the older switches, which write some layers and have variables of their own."""
    import torch
    from torch._C import _set_fp32_precision_setter as put

    older = (
        _older_switch(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
        _older_switch(torch._C._get_cudnn_allow_tf32, torch._C._set_cudnn_allow_tf32),  # noqa: SLF001 (no public ones)
    )
    layers = _own_fp32_precisions()

    def put_back() -> None:
        for switch in older:
            switch()
        if _own_fp32_precisions() != layers:
            for layer, precision in zip(_FP32_LAYERS, layers, strict=True):
                put(*layer, precision)

    return put_back


def _older_switch(read: Callable[[], Any], write: Callable[[Any], object]) -> PutBack:
    """As `_switch`, but where older and newer settings contradict each other some versions refuse to read it."""

    def readable() -> Any:
        try:
            return read()
        except RuntimeError:
            return None

    with _quietly():
        before = readable()

    def put_back() -> None:
        with _quietly():
            if before is not None and readable() != before:
                write(before)

    return put_back


def _own_fp32_precisions() -> list[str]:
    """Reading gives the inherited value, so the outer layers are cleared while the inner ones are read."""
    from torch._C import _get_fp32_precision_getter as get
    from torch._C import _set_fp32_precision_setter as put

    own: list[str] = []
    for layer in _FP32_LAYERS:
        own.append(get(*layer))
        if layer[1] == "all":
            put(*layer, "none")
    for layer, precision in zip(_FP32_LAYERS, own, strict=True):
        if layer[1] == "all":
            put(*layer, precision)
    return own


@contextmanager
def _quietly() -> Iterator[None]:
    """Some versions of torch advise against the older switches wherever they are read."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# Tensors: the bytes of their storages, their gradients and their place


def _tensors_by_device(things: Iterable[object]) -> list[list["torch.Tensor"]]:
    """The host's first."""
    import torch
    from torch.nn.parameter import is_lazy

    found: dict[torch.device, list[torch.Tensor]] = {torch.device("cpu"): []}
    for thing in things:
        if isinstance(thing, torch.Tensor):
            if is_lazy(thing):
                raise UsageError("the model has parameters without a shape yet: run it once before")
            found.setdefault(thing.device, []).append(thing)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class _Tensors:
    """The tensors of one device: first their bytes come back, then what each of them points to."""

    copies: tuple["_Copy", ...]
    others: tuple["_Other", ...]
    handles: tuple["_Handle", ...]

    @classmethod
    def remembered(cls, tensors: list["torch.Tensor"]) -> "_Tensors":
        import torch

        stretches = _stretches(tensor for tensor in tensors if _is_plain(tensor))
        _synchronize(stretches)
        with torch.no_grad():
            return cls(
                tuple(_copied(stretches)),
                tuple(_Other(tensor, tensor.detach().clone()) for tensor in tensors if _is_other(tensor)),
                tuple(_Handle.of(tensor) for tensor in tensors),
            )

    def put_back(self) -> None:
        import torch

        _synchronize(copy.stretch for copy in self.copies)
        contents: tuple[_Copy | _Other, ...] = (*self.copies, *self.others)
        with torch.no_grad():
            for content in contents:
                content.put_back()
            for handle in self.handles:
                handle.put_back_data()
            for handle in self.handles:  # a gradient must fit its parameter, so both have their data by now
                handle.put_back_leaf()


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Bytes of one storage that tensors of the step lie in."""

    storage: "torch.UntypedStorage"
    start: int
    stop: int

    def bytes(self) -> "torch.Tensor":
        """A tensor over them of its own: to write through it touches nobody's version counter or graph."""
        import torch

        empty = torch.empty(0, dtype=torch.uint8, device=self.storage.device)
        return empty.set_(self.storage, self.start, (self.stop - self.start,), (1,))

    def joined(self, other: "_Stretch") -> "_Stretch":
        return _Stretch(self.storage, min(self.start, other.start), max(self.stop, other.stop))


@dataclass(frozen=True, slots=True)
class _Copy:
    stretch: _Stretch
    content: "torch.Tensor"

    def put_back(self) -> None:
        if self.stretch.storage.nbytes() < self.stretch.stop:
            self.stretch.storage.resize_(self.stretch.stop)
        self.stretch.bytes().copy_(self.content)


@dataclass(frozen=True, slots=True)
class _Other:
    """A sparse, nested or opaque tensor: it has no bytes in a row, but knows how to copy itself."""

    tensor: "torch.Tensor"
    content: "torch.Tensor"

    def put_back(self) -> None:
        self.tensor.copy_(self.content)


@dataclass(frozen=True, slots=True)
class _Handle:
    """What a tensor says about itself: where its data lies, whether it wants a gradient, and which it has."""

    tensor: "torch.Tensor"
    alias: "torch.Tensor | None"
    """Lies where the tensor lay: a step may give a parameter other data."""
    is_leaf: bool
    requires_grad: bool
    grad: "torch.Tensor | None"

    @classmethod
    def of(cls, tensor: "torch.Tensor") -> "_Handle":
        alias = tensor.detach() if _is_plain(tensor) else None
        grad = tensor.grad if tensor.is_leaf else None
        return cls(tensor, alias, tensor.is_leaf, tensor.requires_grad, grad)

    def put_back_data(self) -> None:
        if self.alias is not None and _place(self.tensor) != _place(self.alias):
            self.tensor.data = self.alias

    def put_back_leaf(self) -> None:
        if self.is_leaf and not self.tensor.is_leaf and not self.tensor._is_view():  # noqa: SLF001 (no public name)
            self.tensor.detach_()
        if not self.is_leaf or not self.tensor.is_leaf:  # torch detaches no view that autograd has taken over
            return
        if self.tensor.requires_grad != self.requires_grad:
            self.tensor.requires_grad_(self.requires_grad)
        if self.tensor.grad is not self.grad:
            self.tensor.grad = self.grad


def _place(tensor: "torch.Tensor") -> tuple[object, ...]:
    storage = tensor.untyped_storage()
    return (
        *(storage._cdata, tensor.storage_offset(), tensor.shape, tensor.stride()),  # noqa: SLF001 (a storage's identity)
        *(tensor.dtype, tensor.device),
    )


def _is_plain(tensor: "torch.Tensor") -> bool:
    """Lies in a storage that has bytes."""
    return _is_strided(tensor) and not _is_wrapper(tensor) and tensor.untyped_storage().device.type != "meta"


def _is_other(tensor: "torch.Tensor") -> bool:
    return not _is_strided(tensor) and not _is_wrapper(tensor)


def _is_strided(tensor: "torch.Tensor") -> bool:
    import torch

    return tensor.layout is torch.strided and not tensor.is_nested


def _is_wrapper(tensor: Any) -> bool:
    """Made of other tensors, which the walk finds; of its own it has nothing."""
    from torch.utils._python_dispatch import is_traceable_wrapper_subclass

    return is_traceable_wrapper_subclass(tensor)


def _stretches(tensors: Iterable["torch.Tensor"]) -> list[_Stretch]:
    """One for each storage, from the first byte that a tensor uses to the last."""
    found: dict[int, _Stretch] = {}
    for tensor in tensors:
        stretch = _stretch(tensor)
        identity = stretch.storage._cdata  # noqa: SLF001 (two tensors share memory if they share this)
        if stretch.start < stretch.stop:
            found[identity] = stretch.joined(found.get(identity, stretch))
    return list(found.values())


def _stretch(tensor: "torch.Tensor") -> _Stretch:
    storage, first = tensor.untyped_storage(), int(tensor.storage_offset())
    if tensor.numel() == 0:
        return _Stretch(storage, 0, 0)
    last = first + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))
    size = tensor.element_size()
    return _Stretch(storage, first * size, min((last + 1) * size, storage.nbytes()))


def _synchronize(stretches: Iterable[_Stretch]) -> None:
    """No kernel of any stream may still write while bytes are copied."""
    import torch

    for device in {stretch.storage.device for stretch in stretches} - {torch.device("cpu")}:
        torch.accelerator.synchronize(device)


def _copied(stretches: list[_Stretch]) -> list[_Copy]:
    """Of one device's: beside the originals where half of what is free takes them, else on the host."""
    import torch

    host = torch.device("cpu")
    device = stretches[0].storage.device if stretches else host
    needed = sum(stretch.stop - stretch.start for stretch in stretches)
    if device.type != "cpu" and needed <= SHARE_OF_FREE * _free_bytes(device):
        try:
            return _copies(stretches, device)
        except torch.OutOfMemoryError:  # free, but in pieces
            pass
    if needed > SHARE_OF_HOST * _free_bytes(host):
        raise _no_room(needed)
    try:
        return _copies(stretches, host)
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        raise _no_room(needed) from None


def _copies(stretches: list[_Stretch], device: "torch.device") -> list[_Copy]:
    return [_Copy(stretch, stretch.bytes().to(device, copy=True)) for stretch in stretches]


def _free_bytes(device: "torch.device") -> float:
    """What the driver has left and what torch holds without using it; none where nobody tells."""
    import torch

    if device.type == "cpu":
        free = free_host_bytes()
        return float("inf") if free is None else free
    if device.type != "cuda":
        return 0
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def _no_room(needed: int) -> Missing:
    return Missing(
        f"keeping a copy of what the step changes takes {units.capacity(needed)} of memory, more than is free: "
        "free some, or make the model smaller"
    )
