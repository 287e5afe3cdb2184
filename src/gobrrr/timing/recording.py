"""Recording a few steps with torch's profiler, through its public file."""

import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from time import perf_counter

from gobrrr.errors import CannotDecide
from gobrrr.steps import Spoiled, Steps, stepwise
from gobrrr.timing.timeline import Timeline
from gobrrr.timing.traces.reading import read_trace
from gobrrr.timing.traces.spans import timeline_of

_NOTICES = "KINETO_LOG_LEVEL"
_TEARDOWN = "TEARDOWN_CUPTI"
"""Read by Kineto, torch's profiler, when a recording begins and when it ends."""


@stepwise
def recorded(synchronize: Callable[[], None], *, ops: bool, steps: int = 1, lead_in: int = 0) -> Steps[Timeline]:
    """The timeline of so many steps back to back; with ops and their shapes, or the device and its calls alone.

    Recording ops doubles the time of a step that the host limits, so times are taken without them. The steps of the
    lead-in run just before, under the same profiler and without a pause: a device that rested runs faster for a while
    than it does in a loop.
    """
    from torch.profiler import ProfilerActivity, profile, schedule, supported_activities

    if _runs_already():
        raise CannotDecide("a profiler runs already, and torch has room for one: examine the program without its own")
    every = supported_activities()  # type: ignore[no-untyped-call]
    activities = ({ProfilerActivity.CPU} if ops else set()) | (every - {ProfilerActivity.CPU})
    last = max(1, lead_in) + steps - 1
    synchronize()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler = profile(
            activities=activities,
            record_shapes=ops,
            schedule=schedule(wait=0, warmup=max(1, lead_in), active=steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        )
        with ExitStack() as entered:
            with _quiet():
                entered.enter_context(profiler)
            for number in range(last + 1):
                if number == last - steps + 1:
                    began_s = perf_counter()
                try:
                    yield 1
                except Spoiled as spoiled:  # in the lead-in only what the device does counts
                    if spoiled.mid_step or number > last - steps:
                        raise
                if number == last:
                    synchronize()
                    wall_s = perf_counter() - began_s
                with _quiet():
                    profiler.step()
        return replace(timeline_of(read_trace(path, processes=1)), wall_s=wall_s)


def let_go(device: str) -> None:
    """Has the profiler leave the driver, which it does not by itself: every launch for the rest of the process would
    take longer, by a quarter of a step that the host limits on an H200.

    It leaves with a recording that is told to, and that then holds nothing; so it is one of its own. Before CUDA 12.6
    leaving breaks CUDA graphs, and torch forbids it.
    """
    import torch
    from torch.profiler import ProfilerActivity, profile

    version = torch.version.cuda
    graphs_survive = version is not None and tuple(map(int, version.split(".")[:2])) >= (12, 6)
    if not device.startswith("cuda") or not graphs_survive or _runs_already():
        return
    before = os.environ.get(_TEARDOWN)
    os.environ[_TEARDOWN] = "1"
    try:
        with _quiet(), profile(activities=[ProfilerActivity.CUDA]):
            torch.zeros(1, device=device)
            torch.cuda.synchronize(device)
    finally:
        del os.environ[_TEARDOWN]
        if before is not None:
            os.environ[_TEARDOWN] = before


def _runs_already() -> bool:
    from torch.autograd import _profiler_enabled  # type: ignore[attr-defined]

    return bool(_profiler_enabled())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the profiler's own warnings, about its schedule; those of the steps are not ours to drop. And without its
    comings and goings on the terminal, unless somebody has asked for them.
    """
    asked = _NOTICES in os.environ
    os.environ.setdefault(_NOTICES, "6")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        if not asked:
            del os.environ[_NOTICES]
