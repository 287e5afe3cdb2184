"""The recordings of an examination: with ops, to know what ran, and of the device alone, to know how long it took."""

import math
from dataclasses import dataclass

from gobrrr.machine import Ceilings
from gobrrr.steps import Steps, retried, stepwise
from gobrrr.timing.clock import DeviceClock
from gobrrr.timing.host import host_share, waits
from gobrrr.timing.idle import gap_before_s, idle_shares, serial_idle_shares
from gobrrr.timing.kernel import Kernel, Sync
from gobrrr.timing.kernels import device_kernels, host_kernels
from gobrrr.timing.recording import let_go, recorded
from gobrrr.timing.syncs import SyncLine, located, sync_lines
from gobrrr.timing.timeline import Timeline, asked_for_within
from gobrrr.work.lineage import Dispatched

RECORDED_STEPS = 3
"""Of the recording without ops: the middle one has a step before it and one behind, as in a loop."""

LEAD_IN_S = 1.0
"""Of steps before a recording: power and clock controllers of a GPU settle within it."""

MOST_LEAD_IN = 1000

HOST_RECORDINGS = 3
"""Of a CPU step with its ops: an op's time is the median of them."""


@dataclass(frozen=True, slots=True)
class Recordings:
    linked: tuple[Timeline, ...]
    """Each one step with its ops. Its times are the host's own on a CPU, and distorted elsewhere."""
    timed: Timeline | None
    """Some steps of the device alone; None where the host is the device."""
    lines: tuple[SyncLine, ...]
    """Where the step waits for the device."""

    @property
    def step_profiled_s(self) -> float | None:
        """What a step takes with all that is recorded of it."""
        spans = (*self.linked[0].ops, *self.linked[0].device)
        if not spans:
            return None
        return max(span.end_s for span in spans) - min(span.start_s for span in spans)

    @property
    def doubts(self) -> tuple[str, ...]:
        if self.timed is None or len(asked_for_within(self.timed).device) % RECORDED_STEPS == 0:
            return ()
        return ("steps in a row launch different numbers of kernels: kernels are timed under the full profiler",)

    @property
    def gap_before_s(self) -> float | None:
        return None if self.timed is None else gap_before_s(asked_for_within(self.timed), RECORDED_STEPS)

    @property
    def syncs(self) -> tuple[Sync, ...] | None:
        """The waits of one step, each with the line it comes from."""
        return None if self.timed is None else located(waits(self.timed, RECORDED_STEPS), self.lines)

    def host_s(self, step_s: float) -> float | None:
        """What the host needs of a step of T."""
        share = None if self.timed is None else host_share(self.timed, RECORDED_STEPS)
        return None if share is None else share * step_s

    def kernels(self, ran: Dispatched, ceilings: Ceilings, step_s: float) -> tuple[Kernel, ...]:
        if self.timed is not None:
            linked, timed = asked_for_within(self.linked[0]), asked_for_within(self.timed)
            return device_kernels(ran, linked, timed, RECORDED_STEPS)
        dispatch_s = ceilings.dispatch_s or 0.0
        return host_kernels(ran, self.linked, step_s, dispatch_s, profiler_op_s(dispatch_s))

    def idle(self, ops: int, ceilings: Ceilings, idle_s: float) -> dict[str, float] | None:
        """Shares of the idle time by cause, of a step of so many ops."""
        if self.timed is not None:
            return idle_shares(self.linked[0], asked_for_within(self.timed), RECORDED_STEPS)
        return serial_idle_shares(self.linked[0], (ceilings.dispatch_s or 0.0) * ops, idle_s)


@stepwise
def record(clock: DeviceClock, step_s: float) -> Steps[Recordings]:
    try:
        return (yield from _recorded(clock, step_s))
    finally:
        let_go(clock.device)


def _recorded(clock: DeviceClock, step_s: float) -> Steps[Recordings]:
    linked = [(yield from retried(lambda: _linked(clock)))]
    if clock.device == "cpu":
        while len(linked) < HOST_RECORDINGS:
            linked.append((yield from retried(lambda: _linked(clock))))
        return Recordings(tuple(linked), None, ())
    timed = yield from retried(lambda: _timed(clock, step_s))
    waited = waits(timed, RECORDED_STEPS)
    lines = (yield from retried(sync_lines.passing)) if waited else ()
    return Recordings(tuple(linked), timed, lines)


def _linked(clock: DeviceClock) -> Steps[Timeline]:
    """With the ops. Of a CUDA graph the kernels are those of its warm-up, launched one by one."""
    from gobrrr.work import inductor

    with inductor.ungraphed(), inductor.annotated():
        return (yield from recorded.passing(clock.synchronize, ops=True))


def _timed(clock: DeviceClock, step_s: float) -> Steps[Timeline]:
    """The device alone, after a lead-in that brings its clocks to where they were while the step was timed."""
    lead_in = min(MOST_LEAD_IN, math.ceil(LEAD_IN_S / step_s))
    return (yield from recorded.passing(clock.synchronize, ops=False, steps=RECORDED_STEPS, lead_in=lead_in))


def profiler_op_s(dispatch_s: float, ops: int = 500) -> float:
    """What recording one op costs, from small additions that are nothing but dispatch without it."""
    import torch

    x = torch.ones(1)

    def additions() -> None:
        for _ in range(ops):
            torch.add(x, x)

    spans = recorded(additions, lambda: None, ops=True).ops
    wall_s = max(span.end_s for span in spans) - min(span.start_s for span in spans)
    return max(0.0, wall_s / ops - dispatch_s)
