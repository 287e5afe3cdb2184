"""Measuring leaves no trace: what a probe must change for a moment is put back as it was, exactly."""

import gc
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from gobrrr.machine.identity import Machine


@contextmanager
def undisturbed(machine: Machine) -> Iterator[None]:
    """Random state, gradient and inference mode, autocast, device and garbage collection survive; memory goes back."""
    import torch

    with ExitStack() as stack:
        stack.enter_context(without_garbage_collection())
        if machine.kind == "cuda":
            stack.enter_context(torch.cuda.device(machine.index))
        devices = [] if machine.kind == "cpu" else [machine.index]
        kind = "cuda" if machine.kind == "cpu" else machine.kind
        stack.enter_context(torch.random.fork_rng(devices=devices, device_type=kind))
        stack.enter_context(torch.autocast(machine.kind, enabled=False))
        stack.enter_context(torch.inference_mode(mode=False))  # a probe times autograd too
        stack.enter_context(torch.no_grad())
        try:
            yield
        finally:
            free_caches(machine)


def free_caches(machine: Machine) -> None:
    """Gives back what the allocators keep for later: the user's program comes next and may need it."""
    import torch

    if machine.kind == "cpu":
        return
    torch.accelerator.empty_cache()
    private = getattr(torch._C, "_host_emptyCache", None)  # noqa: SLF001 (the public name came with torch 2.13)
    empty_host_cache = getattr(torch.accelerator, "empty_host_cache", private)
    if empty_host_cache is not None:
        empty_host_cache()


@contextmanager
def without_garbage_collection() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextmanager
def fp32_precision(backend: str, precision: str) -> Iterator[None]:
    """How `backend` ("cuda", "mkldnn") multiplies fp32 matrices: "ieee" or "tf32", for a while.

    Torch keeps one setting per (backend, op), which inherits from (backend, all) and (generic, all) where it
    is "none". Reading gives the inherited value; writing that back would pin it. So the outer two are cleared
    while the inner one is read. The older switches (`allow_tf32`, `set_float32_matmul_precision`) live in a
    variable of their own, which products no longer consult since torch 2.9 and which is left alone here.
    """
    from torch._C import _get_fp32_precision_getter as get
    from torch._C import _set_fp32_precision_setter as put

    layers = (("generic", "all"), (backend, "all"), (backend, "matmul"))
    own: list[str] = []
    for layer in layers:
        own.append(get(*layer))
        put(*layer, "none")
    try:
        put(backend, "matmul", precision)
        yield
    finally:
        for layer, value in zip(layers, own, strict=True):
            put(*layer, value)
