"""Recording a few steps with torch's profiler, through its public file."""

import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

from gobrrr.timing.timeline import Timeline
from gobrrr.timing.traces.reading import read_trace
from gobrrr.timing.traces.spans import timeline_of


def recorded(
    step: Callable[[], object], synchronize: Callable[[], None], *, ops: bool, steps: int = 1, lead_in: int = 0
) -> Timeline:
    """The timeline of so many steps back to back; with ops and their shapes, or the device and its calls alone.

    Recording ops doubles the time of a step that the host limits, so times are taken without them. The steps of the
    lead-in run just before, under the same profiler and without a pause: a device that rested runs faster for a while
    than it does in a loop.
    """
    from torch.profiler import ProfilerActivity, profile, schedule, supported_activities

    every = supported_activities()  # type: ignore[no-untyped-call]
    activities = ({ProfilerActivity.CPU} if ops else set()) | (every - {ProfilerActivity.CPU})
    last = max(1, lead_in) + steps - 1
    synchronize()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")  # the profiler's own, about its schedule
        path = Path(folder) / "trace.json"
        with profile(
            activities=activities,
            record_shapes=ops,
            schedule=schedule(wait=0, warmup=max(1, lead_in), active=steps, repeat=1),
            on_trace_ready=lambda profiler: profiler.export_chrome_trace(str(path)),
        ) as profiler:
            for number in range(last + 1):
                step()
                if number == last:
                    synchronize()
                profiler.step()
        return timeline_of(read_trace(path, processes=1))
