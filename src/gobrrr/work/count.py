"""Counting a workload: on fake tensors, so that no memory is needed and nothing runs, or for real."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

from gobrrr.errors import ProgramFailed
from gobrrr.extras import need
from gobrrr.work.program import Program
from gobrrr.workload import made_step, user_code, where

Progress = Callable[[int, int, str], None]

STEP = "the step"


def count_workload(
    factory: Callable[[], Any], *, real: bool = False, progress: Progress = lambda _number, _total, _what: None
) -> Program:
    """The program of one steady step: a first one, uncounted, lets the optimizer make its state."""
    need("torch", "torch")
    import torch

    from gobrrr.work.counter import counted_program, uncompiled
    from gobrrr.work.fake import fake_tensors

    with torch.random.fork_rng(), nullcontext() if real else _explained(), nullcontext() if real else fake_tensors():
        progress(1, 3, "building the workload")
        step, _ = made_step(factory)
        progress(2, 3, "a first step, so that the optimizer has its state")
        with uncompiled():
            user_code(step, STEP)
        progress(3, 3, "a step, every op of it")
        return counted_program(lambda: user_code(step, STEP))


def count_elsewhere(
    factory: Callable[[], Any],
    *,
    traced: bool,
    real: bool = False,
    progress: Progress = lambda _number, _total, _what: None,
) -> Program:
    """The program as a CUDA device would run it; `traced`, as it runs where a compiler sees the model."""
    need("torch", "torch")
    from gobrrr.work.cuda_choices import cuda_choices
    from gobrrr.work.tracing import as_traced

    with nullcontext() if real else cuda_choices(), as_traced() if traced else nullcontext():
        return count_workload(factory, real=real, progress=progress)


@contextmanager
def _explained() -> Iterator[None]:
    """What fails on fake tensors may run by itself: the error then says which op reads values, and what to do."""
    from gobrrr.work.fake import reads_values

    try:
        yield
    except ProgramFailed as failure:
        cause = failure.__cause__
        op = reads_values(cause)
        if op is not None and cause is not None:
            raise ProgramFailed(
                f"{op} reads the values of a tensor{where(cause)}, and fake tensors have none: "
                "add --real to count while running on this machine"
            ) from cause
        if not str(failure).startswith(STEP):
            raise
        raise ProgramFailed(
            f"{failure}; if it runs by itself it needs values that fake tensors lack: add --real"
        ) from cause
