"""torch.compile as treatments use it: in place, with options, and attention called as eager calls it.

The one file of `treat/` that knows torch.compile's insides; `tests/test_treat_attention.py` and
`tests/test_treat_compiling.py` say what is assumed.

A model that asks whether it is being traced may decide otherwise when it is: transformers then builds a dense mask that
all of a batch passes, and with a mask flash attention is lost. But where a step reads no values, its decisions follow
from shapes alone, so that what eager decided holds for every input of these shapes. So eager's calls of attention are
noted in their order, and in the traced graph each call with a mask that eager had not gets eager's arguments.
"""

import inspect
import logging
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import wraps
from types import MethodType
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state import preserved
from gobrrr.treat.activation_masks import masks_made_again
from gobrrr.treat.attention import argument, attention_heard, attention_nodes, read_in_place, set_argument
from gobrrr.treat.draws import drawn_by_four
from gobrrr.treat.edit import Edit, attribute, shared, swap_off, swap_on
from gobrrr.treat.loss_head import loss_by_its_parts, loss_over_padding
from gobrrr.treat.mixed_orders import mixed_beyond_the_cache
from gobrrr.treat.once import computed_once
from gobrrr.treat.optimizers import Gradients, Rates, has_begun, other_settings
from gobrrr.treat.stillness import idle_optimizers, uncompiled
from gobrrr.treat.subject import Subject
from gobrrr.treat.writes import known
from gobrrr.workload import Step

if TYPE_CHECKING:
    import torch

MANY = 256
"""Versions of a function that may be compiled in a search: with and without dropout, for every plan that is tried."""

MOST_SETTINGS = 4
"""Of an optimizer besides its rates, as its decays: each is compiled anew, and a schedule of them has no end."""

LEAST_VERSIONS = 8
"""As many as torch allows."""

VERSIONS = 2
"""More of them for each module that is compiled by itself: with gradients and without."""


_OURS: ContextVar[bool] = ContextVar("whether what is compiled is what was looked at before", default=False)


def is_ours() -> bool:
    """Nobody but us calls the step now."""
    return _OURS.get()


@contextmanager
def patient_compiler() -> Iterator[None]:
    """Many plans are compiled one after the other: none of them may be the one too many, or be made for all sizes or
    all rates of dropout. A number that the step has read, though, is another one each time.

    A message in the log is no reason to cut a graph in two. What the compiler warns of, as a graph that it has to cut,
    shows in what it gains.
    """
    from torch._dynamo import config

    room, ours = swap_on([more_versions(MANY), numbers_alone_vary()]), _OURS.set(True)
    try:
        with (
            _only_errors("torch._dynamo"),
            _only_errors("torch._inductor"),
            config.patch(accumulated_recompile_limit=8 * MANY, ignore_logger_methods=Everything()),
            warnings.catch_warnings(),
        ):
            warnings.filterwarnings(
                "ignore", message=r"The \.grad attribute of a Tensor that is not a leaf"
            )  # it looks
            warnings.filterwarnings("ignore", module=r"torch\._(dynamo|inductor|functorch)")
            warnings.filterwarnings("ignore", message="TensorFloat32 tensor cores")  # for `gobrrr treat` to say
            warnings.filterwarnings("ignore", message=r"\s*Online softmax is disabled")  # the compiler's own choice
            warnings.filterwarnings("ignore", message="The CUDA Graph is empty")  # with which graphs of its own begin
            yield
    finally:
        _OURS.reset(ours)
        swap_off(room)


def more_versions(number: int) -> Edit:
    """That one function may be compiled in, past which the compiler silently gives up: all blocks that it compiles are
    versions of one. Not for ever more, though: a step that reads a counter is another program each time.
    """
    from torch._dynamo import config

    added = [False]

    def write(wanted: bool) -> None:  # noqa: FBT001 (the value of the edit)
        left = config.recompile_limit + (number if wanted else -number)
        config.recompile_limit = max(left, LEAST_VERSIONS)  # where another thread has added them, they are not there
        added[0] = wanted

    return Edit(lambda: added[0], write, value=True)


def numbers_alone_vary() -> Edit:
    """Dynamo takes whatever was another when it compiled last for a variable. Here that is so of numbers under a name
    of their own in what follows a break, as a loss that was read: sizes and what modules hold stay what they are.
    """
    from torch._dynamo.pgo import process_automatic_dynamic as taken_for
    from torch._dynamo.resume_execution import TORCH_DYNAMO_RESUME_IN_PREFIX
    from torch._dynamo.variables import builder

    def varies(translator: Any, name: str, seen: Any, **how: Any) -> Any:
        is_number = isinstance(seen.scalar, int | float) and _VARIABLE.fullmatch(name)
        was_read = is_number and translator.f_code.co_name.startswith(TORCH_DYNAMO_RESUME_IN_PREFIX)
        return taken_for(translator, name, seen, **how) if was_read else seen

    return shared(builder, "process_automatic_dynamic", varies)


_VARIABLE = re.compile(r"L\['\w+'\]")
"""How Dynamo writes one: what it holds would have more to its name."""


@contextmanager
def _only_errors(name: str) -> Iterator[None]:
    """Unless somebody has asked for more than warnings."""
    logger = logging.getLogger(name)
    before = logger.level
    if before in (logging.NOTSET, logging.WARNING):
        logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)


class Everything(set[Any]):
    """Holds whatever is asked for: libraries add methods of their own to loggers. Written down it is empty, for torch
    sorts such a set when it logs its configuration, and functions have no order.
    """

    def __contains__(self, thing: object) -> bool:
        del thing
        return True


def compiled(module: "torch.nn.Module", **how: Any) -> Iterator[Edit]:
    """As `module.compile` does it, which keeps the names of parameters: the module's call is compiled."""
    import torch

    call: Callable[..., Any] = module._call_impl  # noqa: SLF001

    def called(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    yield more_versions(VERSIONS)
    seen = called if is_torchs_own(module) else call
    yield attribute(module, "_compiled_call_impl", torch.compile(seen, **how))


def is_torchs_own(module: "torch.nn.Module") -> bool:
    """Dynamo passes over these where they are called from outside, and over all that a Sequential holds: nothing would
    be compiled, and nobody told. Others it looks into by themselves, and leaves their hooks to Python.
    """
    forward = inspect.getattr_static(type(module), "forward", None)
    return str(getattr(forward, "__module__", "")).partition(".")[0] == "torch"


def compiled_step(subject: Subject, backend: Callable[..., Any]) -> Iterator[Edit]:
    """The subject's step. Its optimizers stay as they are: they have kernels for all parameters at once."""
    import torch

    for optimizer in subject.optimizers:
        for name in ("step", "zero_grad"):
            yield attribute(optimizer, name, _uncompiled(getattr(optimizer, name), optimizer))
    yield globals_seen()
    yield settings_left_alone()
    yield attribute(subject, "step", torch.compile(_as_function(subject.step), backend=backend))


def _uncompiled(method: Callable[..., Any], owner: object) -> MethodType:
    """Still a method, with the marks of its own: schedulers of rates look for both."""
    import torch

    @wraps(method)
    def called(_owner: object, *args: Any, **kwargs: Any) -> Any:
        return method(*args, **kwargs)

    return MethodType(torch.compiler.disable(called), owner)  # type: ignore[no-untyped-call]


def compiled_update(optimizer: "torch.optim.Optimizer") -> Iterator[Edit]:
    """An optimizer's step, its rates and gradients read anew each time."""
    import torch

    method, rates, gradients = optimizer.step, Rates(optimizer), Gradients(optimizer)
    update = torch.compile(method, dynamic=False)  # where another setting is taken for a variable it stays what it was
    settings: set[Any] = set()
    begun = [has_begun(optimizer)]

    @wraps(method)
    def called(_owner: object, *args: Any, **kwargs: Any) -> Any:
        if not begun[0]:  # what it makes then, as zeros, a compiler takes for constants, and gradients for their sum
            begun[0] = True
            return method(*args, **kwargs)
        settings.add(tuple(other_settings(optimizer)))
        with rates.in_tensors(), gradients.in_tensors_that_stay():
            return (update if len(settings) <= MOST_SETTINGS else method)(*args, **kwargs)

    yield settings_left_alone()
    yield attribute(optimizer, "step", MethodType(called, optimizer))


def settings_left_alone() -> Edit:
    """Dynamo, as soon as it sees an optimizer's groups, takes it for one that can be captured, and whatever is written
    into a group then writes all of it: that, and the settings of when it was traced, whatever they are now.
    """
    from torch._dynamo.variables.optimizer import OptimizerVariable

    return shared(OptimizerVariable, "_set_capturable", _does_nothing)


def _does_nothing(*_: object) -> None:
    pass


def globals_seen() -> Edit:
    """Dynamo leaves a frame alone in which it sees no tensor, and looks no further than arguments and variables: of a
    script's step, whose model and data are globals, all that follows the first break would stay as it is.
    """
    import torch
    from torch._dynamo import convert_frame

    sees = convert_frame.has_tensor_in_frame

    def sees_globals(frame: Any) -> bool:
        named = (frame.f_globals.get(name) for name in frame.f_code.co_names)
        return sees(frame) or any(isinstance(one, torch.Tensor | torch.nn.Module) for one in named)

    return shared(convert_frame, "has_tensor_in_frame", sees_globals)


def _as_function(step: Step) -> Step:
    """Of an object that can be called its method: torch.compile leaves the object as it is where the graph breaks."""
    method = step.__call__  # type: ignore[operator]
    return method if isinstance(method, MethodType) else step


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """What of a call of scaled_dot_product_attention a program decides."""

    masked: bool
    causal: bool


def eager_attention(subject: Subject) -> list[AttentionCall] | None:
    """The step's calls of attention, in their order, as they are when nobody compiles; None if it reads values.

    An optimizer's reading of its own numbers decides nothing about the model.
    """
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    calls: list[AttentionCall] = []
    read: list[str] = []

    def note(*args: Any, **kwargs: Any) -> None:
        calls.append(_attention_call(*args, **kwargs))

    class Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            del types
            if func is torch.ops.aten._local_scalar_dense.default:  # noqa: SLF001 (an op's name)
                read.append(str(func))
            return func(*args, **(kwargs or {}))

    with (
        uncompiled(subject),
        preserved(subject.origin),
        idle_optimizers(subject),
        attention_heard(note),
        Reads(),  # type: ignore[no-untyped-call]
    ):
        subject.run()
    return None if read else calls


def _attention_call(*args: Any, **kwargs: Any) -> AttentionCall:
    """By its signature: query, key, value, attn_mask, dropout_p, is_causal."""
    given = dict(zip(("query", "key", "value", "attn_mask", "dropout_p", "is_causal"), args, strict=False)) | kwargs
    return AttentionCall(given.get("attn_mask") is not None, bool(given.get("is_causal")))


Pass = Callable[["torch.fx.Graph"], None]
"""Changes a traced graph in place, before gradients are made."""


def as_eager(calls: list[AttentionCall]) -> Pass:
    """Attention of the traced graph called as eager calls it, if both call it as often or eager always alike: of a
    graph that is a part of the step nobody knows which calls are its own.

    Only in what is compiled while nobody but us calls the step: a program may call it with a mask later, or in another
    state.
    """

    def change(graph: "torch.fx.Graph") -> None:
        nodes = attention_nodes(graph) if is_ours() else []
        own = calls[:1] * len(nodes) if len(set(calls)) == 1 else calls
        if len(nodes) == len(own):
            for node, call in zip(nodes, own, strict=True):
                if not call.masked and argument(node, 3, "attn_mask") is not None:
                    set_argument(node, 3, "attn_mask", None)
                    set_argument(node, 5, "is_causal", call.causal)

    return change


Options = Callable[["torch.fx.Graph"], dict[str, Any]]
"""Inductor's, for a traced graph as it comes."""

COMBINED = {"combo_kernels": True, "combo_kernels_pointwise_only": True}
"""Short kernels that wait for the same are launched as one: casts of weights, copies, counters."""

FOR_GPUS = {**COMBINED, "online_softmax": False}
"""And a softmax of a long row takes two passes: the second one finds the row in the cache, and both together take one
exponential an element, where a single pass takes two.
"""


FOR_CPUS = {"layout_optimization": False}
"""Convolutions read weights as they lie: Inductor would have their channels last, and copy them so in every step."""


GRAPHED = {"triton.cudagraphs": True}
"""What `mode="reduce-overhead"` stands for."""


def by_device(graph: "torch.fx.Graph") -> dict[str, Any]:
    return FOR_GPUS if is_for_gpus(graph) else FOR_CPUS


def is_for_gpus(graph: "torch.fx.Graph") -> bool:
    devices = (str(getattr(known(node), "device", "")) for node in graph.nodes)
    return any(device.startswith("cuda") for device in devices)


def inductor_after(*passes: Pass, options: Options = by_device, graphs: bool = False) -> Callable[..., Any]:
    """Inductor as torch.compile's backend, on graphs that these passes have changed first, and those that always help:
    what several layers ask for is computed once, before anybody writes a product in another way, because Inductor does
    not see it where nothing is trained; attention reads its keys where they are; a loss reads its logits in whole rows
    and no more often than it has to; and masks that what is kept for a gradient tells are not kept beside it.

    What a pass left without use stays in the graph: here it may still write somewhere, and Inductor knows when not.
    With `graphs` of its own each part that is compiled is replayed as one.
    """
    from torch._inductor.compile_fx import compile_fx

    def backend(graph_module: "torch.fx.GraphModule", inputs: list["torch.Tensor"]) -> Any:
        config_patches = {**options(graph_module.graph), **masks_made_again(), **(GRAPHED if graphs else {})}
        always = (read_in_place, loss_over_padding, loss_by_its_parts)
        return compile_fx(
            _changed(graph_module, (computed_once, *passes, *always)), inputs, config_patches=config_patches
        )

    return backend


def written(tensor: "torch.Tensor") -> "torch.Tensor":
    """In a graph: to memory, by what computes it, whoever reads it."""
    from torch._inductor.test_operators import realize

    return realize(tensor)


WRITTEN_SO = "gobrrr 2"
"""Another with every change of how kernels are written: torch's cache knows of its own sources alone."""


def generated_otherwise(device: str) -> Iterator[Edit]:
    """How Inductor writes kernels for a GPU, changed in whatever is compiled from now on, and kept apart from what was
    before.
    """
    if not device.startswith("cuda"):
        return
    from torch.compiler import config

    yield from drawn_by_four()
    yield mixed_beyond_the_cache()
    yield begun_early_and_waiting()
    yield shared(config, "cache_key_tag", f"{config.cache_key_tag} {WRITTEN_SO}".strip())


def begun_early_and_waiting() -> Edit:
    """Begun before the last one has ended, a kernel waits for that before it touches anything. Inductor would let it
    read what the last one does not write; but where that one, as a fill, waits for nobody, who wrote it may still run.
    """
    from torch._inductor.codegen.triton import TritonKernel

    filtered = vars(TritonKernel)["_filter_pdl"]

    def waiting(kernel: Any, code: Any) -> None:
        if kernel._enable_pdl_codegen():  # noqa: SLF001
            code._lines.insert(0, kernel.GDC_WAIT)  # noqa: SLF001 (of all that are there the first one stays)
        filtered(kernel, code)

    return shared(TritonKernel, "_filter_pdl", waiting)


HEAD_START_CYCLES = 4_000_000
"""About two milliseconds: enough for the host to put all repetitions in line before the first one runs."""

REPETITIONS = 25


def kernels_timed_behind_a_head_start() -> Edit:
    """Inductor's way to time the kernels that it chooses from measures launches too: where the host is slow, those of
    short kernels take as long whatever their blocks, and chance decides. With work ahead the device never waits.
    """
    from torch._inductor.runtime.benchmarking import benchmarker

    return shared(benchmarker, "benchmark_gpu", _shortest_ms)


def _shortest_ms(call: Callable[[], Any], **_: Any) -> float:
    """Of a call that finds nothing in the cache."""
    import torch

    call()
    cache = torch.empty(torch.cuda.get_device_properties().L2_cache_size // 4, dtype=torch.int32, device="cuda")
    marks: list[Any] = [torch.cuda.Event(enable_timing=True) for _ in range(2 * REPETITIONS)]  # type: ignore[no-untyped-call]
    before, after = marks[::2], marks[1::2]
    torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START_CYCLES)  # type: ignore[no-untyped-call]  # noqa: SLF001
    for begun, ended in zip(before, after, strict=True):
        cache.zero_()
        begun.record()
        call()
        ended.record()
    torch.cuda.synchronize()
    return float(min(begun.elapsed_time(ended) for begun, ended in zip(before, after, strict=True)))


def eager_after(*passes: Pass) -> Callable[..., Any]:
    """The traced graph as it is, after these passes."""

    def backend(graph_module: "torch.fx.GraphModule", _inputs: list["torch.Tensor"]) -> Any:
        return _changed(graph_module, passes).forward

    return backend


def _changed(graph_module: "torch.fx.GraphModule", passes: tuple[Pass, ...]) -> "torch.fx.GraphModule":
    for change in passes:
        change(graph_module.graph)
    graph_module.recompile()
    return graph_module
