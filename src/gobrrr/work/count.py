"""Counting a workload: on fake tensors, so that no memory is needed and nothing runs, or for real."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from gobrrr.errors import ProgramFailed
from gobrrr.extras import need
from gobrrr.work.program import Program
from gobrrr.workload import made_step, user_code, where

Progress = Callable[[int, int, str], None]


def count_workload(
    factory: Callable[[], Any], *, real: bool = False, progress: Progress = lambda _number, _total, _what: None
) -> Program:
    """The program of one steady step: a first one, uncounted, lets the optimizer make its state."""
    need("torch", "torch")
    from gobrrr.work.fake import fake_tensors, reads_values

    try:
        with nullcontext() if real else fake_tensors():
            return _counted(factory, progress)
    except ProgramFailed as failure:
        op = reads_values(failure.__cause__)
        if op is None or failure.__cause__ is None:
            raise
        raise ProgramFailed(
            f"{op} reads the values of a tensor{where(failure.__cause__)}, and fake tensors have none: "
            "add --real to count while running on this machine"
        ) from failure.__cause__


def _counted(factory: Callable[[], Any], progress: Progress) -> Program:
    from gobrrr.work.counter import Counter

    progress(1, 3, "building the workload")
    step, _ = made_step(factory)
    progress(2, 3, "a first step, so that the optimizer has its state")
    user_code(step, "the step")
    progress(3, 3, "a step, every op of it")
    with Counter() as counter:
        user_code(step, "the step")
    return counter.program()
