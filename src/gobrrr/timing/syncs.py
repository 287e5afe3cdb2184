"""Which lines of the user's program make the host wait for the device, and which wait is whose."""

import sys
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from types import FrameType
from typing import Any, cast

from gobrrr.steps import Steps, stepwise
from gobrrr.timing.kernel import Sync
from gobrrr.timing.timeline import Span

_WARNING = "called a synchronizing CUDA operation"
"""What torch says of a copy or a stream that is waited for."""

_MODE_WARNING = "Synchronization debug mode is a prototype"
"""And of switching that on."""

_DEVICE_CALLS = frozenset({"_cuda_synchronize", "_accelerator_synchronizeDevice"})
"""Of `torch._C`: waits that torch does not warn about, as those for an event."""


class Awaited(StrEnum):
    """For what a call waits: by this, calls of the program and of the runtime are paired."""

    DEVICE = "DeviceSynchronize"
    EVENT = "EventSynchronize"
    STREAM = "StreamSynchronize"


@dataclass(frozen=True, slots=True)
class SyncLine:
    """A call of the user's program that waits for the device."""

    awaited: Awaited
    line: str


def located(waits: Sequence[Span], lines: Sequence[SyncLine]) -> tuple[Sync, ...]:
    """The waits of a step with the lines they come from: of each kind, in the order in which both were made."""
    number = Counter(_awaited(wait) for wait in waits)
    by_kind: defaultdict[Awaited, list[str]] = defaultdict(list)
    for one in lines:
        by_kind[one.awaited].append(one.line)
    sources = {kind: iter(_sources(by_kind[kind], often)) for kind, often in number.items()}
    return tuple(Sync(wait.name, wait.seconds, next(sources[_awaited(wait)])) for wait in waits)


def _sources(lines: Sequence[str], waits: int) -> list[str | None]:
    """A line for each wait: a call may wait several times. If that does not come out even, it is one of the lines."""
    if not lines:
        return [None] * waits
    each, rest = divmod(waits, len(lines))
    if rest or not each:
        return [" or ".join(dict.fromkeys(lines))] * waits
    return [line for line in lines for _ in range(each)]


def _awaited(wait: Span) -> Awaited:
    return next((kind for kind in Awaited if kind in wait.name), Awaited.STREAM)


@stepwise
def sync_lines() -> Steps[tuple[SyncLine, ...]]:
    """Every call of one step that waits for the device, in order."""
    found: list[SyncLine] = []
    with _warnings_noted(found), _calls_noted(found):
        yield 1
    return tuple(found)


@contextmanager
def _warnings_noted(found: list[SyncLine]) -> Iterator[None]:
    """Torch warns of waits for a stream at the Python call that led to it; of those in a backward pass at its end."""
    import torch

    show = warnings.showwarning

    def note(message: Warning | str, category: type[Warning], filename: str, *where: Any) -> None:
        if _WARNING in str(message):
            found.append(SyncLine(Awaited.STREAM, _line(_warned_frame(filename))))
        elif _MODE_WARNING not in str(message):
            show(message, category, filename, *where)

    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("always", message=f".*{_WARNING}")  # else one for each line
        warnings.filterwarnings("always", message=f".*{_MODE_WARNING}")  # whatever the program makes of its own
        warnings.showwarning = cast("Any", note)
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)


@contextmanager
def _calls_noted(found: list[SyncLine]) -> Iterator[None]:
    """Calls into torch that wait for the device or an event, seen by Python's own profiling hook."""
    import torch

    events = (torch.Event, torch.cuda.Event)

    def note(frame: FrameType, event: str, called: Any) -> None:
        if event != "c_call":
            return
        if called.__name__ in _DEVICE_CALLS:
            found.append(SyncLine(Awaited.DEVICE, _line(frame)))
        elif called.__name__ == "synchronize" and isinstance(called.__self__, events):
            found.append(SyncLine(Awaited.EVENT, _line(frame)))

    before = sys.getprofile()
    hook = torch.compiler.disable(note)  # type: ignore[no-untyped-call] # else compiled with what it looks at
    sys.setprofile(hook)
    try:
        yield
    finally:
        sys.setprofile(before)


def _warned_frame(filename: str) -> FrameType:
    """The frame that a warning is about: below it are only the warnings' own."""
    frame = sys._getframe(1)  # noqa: SLF001 (the way to a frame without building the stack)
    while frame.f_code.co_filename != filename and frame.f_back is not None:
        frame = frame.f_back
    return frame


def _line(frame: FrameType) -> str:
    """The user's, or if none of it was running, as in an optimizer that a Workload steps, where torch was."""
    from gobrrr.work.whereabouts import line_of, user_line

    return user_line(frame) or line_of(frame)
