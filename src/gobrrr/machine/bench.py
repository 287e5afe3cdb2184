"""How a probe measures: windows of many calls, warm until steady, every window kept.

A window is one clock reading around so many calls that the clock's own cost and resolution vanish. What
follows a window depends on nothing but the seconds it took, so all of this runs on a fake clock too.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from time import perf_counter, sleep
from typing import TYPE_CHECKING, TypeAlias

from gobrrr.machine.ceilings import Ceilings
from gobrrr.machine.identity import Machine
from gobrrr.stats import Sample

if TYPE_CHECKING:
    import torch

Timed: TypeAlias = Callable[[int], float]
"""Seconds that so many calls of one thing take together."""

STEADY = 0.01
"""Two windows in a row that differ by less: clocks, caches and allocators have settled."""


HOST_WINDOWS = 60
"""Of a few milliseconds each, on the host's own cost."""

BLOCK = 5
"""Windows of which one must be undisturbed: with others at work half of the time, 97 % of blocks have one."""


class Unmeasurable(Exception):
    """This device has no such thing; the sentence says why. The value stays unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is spent on one value: enough for its median to hold, little enough that a person waits."""

    window_s: float
    windows: int
    warmup_s: float
    """At least, before the first window that counts: power and clock controllers take this long."""
    patience_s: float
    """At most, for windows that will not become steady."""
    rest_s: float
    """Idle before each window that counts. A device under a power cap that never rests lowers its clock: an H200's
    bf16 products run at 773 TFLOP/s with rests and at 675 without. In a step other kernels come between, so the
    rested rate is the one that products can reach there."""
    largest_matmul: int
    largest_matmul_s: float
    """A product that takes this long is large enough."""
    largest_buffer_bytes: int
    retry_until_s: float
    """Since the session began: until then a noisy probe is run again, for noise often passes."""

    def brief(self) -> "Effort":
        """For what draws little power, so that no clock needs time to settle.

        Shorter windows and more of them: a short one is either hit by an interruption or not, and the median
        passes over those that are.
        """
        return replace(
            self,
            window_s=self.window_s / 4,
            windows=3 * self.windows,
            warmup_s=self.warmup_s / 10,
            patience_s=self.patience_s / 4,
            rest_s=0,
        )


CUDA_EFFORT = Effort(
    window_s=0.01,
    windows=8,
    warmup_s=0.1,
    patience_s=0.3,
    rest_s=0.03,
    largest_matmul=8192,
    largest_matmul_s=0.005,
    largest_buffer_bytes=2 << 30,
    retry_until_s=14,
)
CPU_EFFORT = Effort(
    window_s=0.02,
    windows=15,
    warmup_s=0.1,
    patience_s=0.6,
    rest_s=0,
    largest_matmul=2048,
    largest_matmul_s=0.05,
    largest_buffer_bytes=256 << 20,
    retry_until_s=25,
)


@dataclass(slots=True)
class Bench:
    """One session of measuring: the machine, the effort, and what is known so far."""

    machine: Machine
    effort: Effort
    known: Ceilings | None = None
    results: dict[str, dict[str, Sample]] = field(default_factory=dict)
    """Probe to its values by dotted key, in this session."""

    @property
    def kind(self) -> str:
        return self.machine.kind

    @property
    def device(self) -> "torch.device":
        import torch

        return torch.device(self.machine.device)

    def timed(self, function: Callable[[], object]) -> Timed:
        """By the device's own clock where it has one: launches that wait for the device then do not count."""
        return _timed_by_events(function) if self.kind == "cuda" else _timed_by_wall(function, self.synchronize)

    def enqueued(self, function: Callable[[], object]) -> Timed:
        """By the host's clock, without waiting for what was enqueued."""
        return _timed_enqueuing(function, self.synchronize)

    def synchronize(self) -> None:
        import torch

        if self.kind != "cpu":
            torch.accelerator.synchronize()

    def seconds(self, function: Callable[[], object]) -> Sample:
        """Seconds of one call on the device."""
        return repeated(self.timed(function), self.effort)

    def brief_seconds(self, function: Callable[[], object]) -> Sample:
        return repeated(self.timed(function), self.effort.brief())

    def host_seconds(self, function: Callable[[], object]) -> Sample:
        """Seconds that one call keeps the host, at its quickest.

        The host is shared: other programs, its own interrupts and the cores it is moved between slow it. So of every
        few windows the quickest counts.
        """
        longer = replace(self.effort.brief(), windows=HOST_WINDOWS)
        return Sample(quickest(repeated(self.enqueued(function), longer, at_most=500).values))


def repeated(timed: Timed, effort: Effort, at_most: int | None = None) -> Sample:
    """Seconds of one call, once per window."""
    calls = calls_per_window(timed, effort.window_s, at_most)
    warm_up(timed, calls, effort)
    return Sample(tuple(_rested(timed, calls, effort.rest_s) / calls for _ in range(effort.windows)))


def _rested(timed: Timed, calls: int, rest_s: float) -> float:
    sleep(rest_s)
    return timed(calls)


def calls_per_window(timed: Timed, window_s: float, at_most: int | None = None) -> int:
    """Doubled until a window is a quarter full, then scaled; the first call, which compiles, is not looked at."""
    calls = 1
    timed(calls)
    limit = math.inf if at_most is None else at_most
    while (spent_s := timed(calls)) < window_s / 4 and calls < limit:
        calls *= 2
    return int(min(limit, max(1, math.ceil(calls * window_s / spent_s)))) if spent_s > 0 else calls


def warm_up(timed: Timed, calls: int, effort: Effort) -> None:
    """Windows that do not count: for `warmup_s`, and on until two in a row agree or patience ends."""
    spent_s, last_s = 0.0, math.inf
    while spent_s < effort.patience_s:
        window_s = timed(calls)
        spent_s += window_s
        if spent_s >= effort.warmup_s and abs(window_s - last_s) <= STEADY * window_s:
            return
        last_s = window_s


def slopes(low: Timed, high: Timed, extra: float, effort: Effort) -> Sample:
    """Seconds of one unit of work, where a call of `high` does `extra` units more than one of `low`.

    The difference removes what both pay alike: dispatch, launch, loads, stores. Each pair is measured side
    by side, so that a drift of the clock hits both.
    """
    pairs = side_by_side((low, high), effort)
    return Sample(tuple((high_s - low_s) / extra for low_s, high_s in pairs))


def side_by_side(several: Sequence[Timed], effort: Effort) -> list[tuple[float, ...]]:
    """Seconds of one call of each, window after window in turn, the quickest of every `BLOCK` windows.

    What is subtracted must be measured together and undisturbed: interference only ever adds, and a difference
    of two disturbed times can be anything, even negative.
    """
    calls = [calls_per_window(timed, effort.window_s) for timed in several]
    warm_up(several[-1], calls[-1], effort)
    turns = [
        tuple(timed(number) / number for timed, number in zip(several, calls, strict=True))
        for _ in range(effort.windows)
    ]
    return list(zip(*(quickest(column) for column in zip(*turns, strict=True)), strict=True))


def quickest(values: Sequence[float]) -> tuple[float, ...]:
    """Of every `BLOCK` values in a row the least."""
    return tuple(min(values[start : start + BLOCK]) for start in range(0, len(values), BLOCK))


def together(samples: Iterable[Sample]) -> Sample:
    """All their values, so that the spread holds what differs from one to the next."""
    return Sample(tuple(value for sample in samples for value in sample.values))


def rates(amount: float, seconds: Sample) -> Sample:
    """So much work in each of those times, per second."""
    return Sample(tuple(amount / value for value in seconds.values))


def _timed_by_wall(function: Callable[[], object], synchronize: Callable[[], None]) -> Timed:
    def timed(calls: int) -> float:
        synchronize()
        start_s = perf_counter()
        for _ in range(calls):
            function()
        synchronize()
        return perf_counter() - start_s

    return timed


def _timed_enqueuing(function: Callable[[], object], synchronize: Callable[[], None]) -> Timed:
    """The queue is empty at the start and takes all the calls (past about a thousand a launch blocks), so that
    the device's speed does not show.
    """

    def timed(calls: int) -> float:
        synchronize()
        start_s = perf_counter()
        for _ in range(calls):
            function()
        spent_s = perf_counter() - start_s
        synchronize()
        return spent_s

    return timed


def _timed_by_events(function: Callable[[], object]) -> Timed:
    from torch.cuda import Event

    start, stop = (Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]

    def timed(calls: int) -> float:
        start.record()
        for _ in range(calls):
            function()
        stop.record()
        stop.synchronize()
        return float(start.elapsed_time(stop)) / 1e3

    return timed
