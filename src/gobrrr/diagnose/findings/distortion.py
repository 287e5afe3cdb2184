"""B504: a step that the profiler changed too much to look at closely."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import seconds, times

DISTORTED = 2
"""Times as long under the full profiler: from there on more than half of what was recorded is the recording."""


@finding(
    "B504",
    "profiler distortion",
    explanation=(
        "Recording every op made the step take more than twice as long, because its ops are so small. The step time "
        "itself is from runs without a profiler and holds. What the host did in idle time comes from this recording "
        "in proportion, and on a CPU so do the times of ops: they are rough."
    ),
    reads="the step took twice as long or more under the full profiler",
    treatment="trust the step time and the limiter; do not compare small ops by their times",
    fix="""
    gobrrr examine train.py:step --batch-test  # needs no profiler
    """,
    unless="On a GPU the kernels' times come from a recording without ops, and only the causes of idle time are rough.",
)
def distortion(case: Case) -> Stake | None:
    profiled_s, step_s = case.exam.step_profiled_s, case.exam.step_s
    if profiled_s is None or profiled_s < DISTORTED * step_s:
        return None
    ratio = times(profiled_s / step_s, 2)
    return Stake(None, None, (f"{seconds(step_s)} a step, {seconds(profiled_s)} under the profiler: {ratio}",))
