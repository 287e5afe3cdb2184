"""B110: a GPU that is called busy while it does next to nothing."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import percent, seconds

UTILIZED = 90
"""Percent, as nvidia-smi says it: few would look further."""

IDLING = 0.1
"""Of the step, that its work needs on this machine when fused."""


@finding(
    "B110",
    "GPU-Util high, arithmetic low",
    explanation=(
        "GPU-Util is the share of time in which any kernel ran at all, be it on one of a hundred multiprocessors. "
        "This step keeps it high and attains less than a tenth of what the machine can do. At stake is all that lies "
        "above the fused floor: the sum of whatever else is found here, and not in addition to it."
    ),
    reads="GPU-Util of 90 % or more while the fused floor is below a tenth of the step",
    treatment="look at the fraction of the floor, not at GPU-Util; the other findings say where the time goes",
    fix="""
    gobrrr examine train.py:step  # the share of the floor stands in the verdict
    """,
    unless="A step that is small by nature, as decoding one token, keeps a GPU occupied whatever one does.",
)
def busy_idler(case: Case) -> Stake | None:
    util, floor_s = case.exam.gpu_util_percent, None if case.fused is None else case.fused.seconds
    if util is None or floor_s is None or util < UTILIZED or floor_s >= IDLING * case.exam.step_s:
        return None
    return Stake(
        case.exam.step_s - floor_s,
        max(0.0, case.busy_s - floor_s),
        (
            (
                f"GPU-Util {util:.0f} %, but the work needs {seconds(floor_s)} of the step's "
                f"{seconds(case.exam.step_s)}: {percent(floor_s / case.exam.step_s)}"
            ),
        ),
    )
