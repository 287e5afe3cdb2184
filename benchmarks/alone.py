"""Timed alone: of the processes that share a machine, all others are stopped while one of them is timed.

A search compiles for most of its time, on a core or two. So several may run at once on a machine of many, and hold each
other up only while one of them looks at the clock. That clock leaves out the time for which its process was stopped.
"""

import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import wraps
from pathlib import Path
from time import perf_counter, sleep
from typing import ParamSpec, TypeVar

from gobrrr.timing.clock import DeviceClock

SETTLED_S = 0.5
"""Until what the stopped ones had asked for has run."""

Given = ParamSpec("Given")
Result = TypeVar("Result")


@dataclass
class Room:
    """A folder that knows who shares the machine: a file for each group of processes, with the seconds it stood."""

    folder: Path
    _depth: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self._own.write_text("0.0")

    @property
    def _own(self) -> Path:
        return self.folder / str(os.getpgrp())

    def leave(self) -> None:
        self._own.unlink(missing_ok=True)

    def stood_s(self) -> float:
        return float(self._own.read_text() or "0.0")

    @contextmanager
    def alone(self) -> Iterator[None]:
        self._depth += 1
        try:
            if self._depth > 1:
                yield
                return
            with (self.folder / "lock").open("a") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                with self._others_stopped():
                    yield
        finally:
            self._depth -= 1

    @contextmanager
    def _others_stopped(self) -> Iterator[None]:
        began_s = perf_counter()
        others = [path for path in self.folder.iterdir() if path.name.isdigit() and path != self._own]
        for path in others:
            with suppress(ProcessLookupError):
                os.killpg(int(path.name), signal.SIGSTOP)
        try:
            sleep(SETTLED_S)
            yield
        finally:
            for path in others:
                with suppress(ProcessLookupError, FileNotFoundError):
                    path.write_text(str(float(path.read_text()) + perf_counter() - began_s))
                    os.killpg(int(path.name), signal.SIGCONT)

    def timed(self, function: Callable[Given, Result]) -> Callable[Given, Result]:
        @wraps(function)
        def alone(*args: Given.args, **kwargs: Given.kwargs) -> Result:
            with self.alone():
                return function(*args, **kwargs)

        return alone


@dataclass(frozen=True)
class RoomClock(DeviceClock):
    room: Room

    def now_s(self) -> float:
        return perf_counter() - self.room.stood_s()
