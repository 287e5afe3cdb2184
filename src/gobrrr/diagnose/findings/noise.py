"""B502: a step whose time differs from window to window."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.stats import NOISY_SPREAD, Sample
from gobrrr.units import percent, seconds


@finding(
    "B502",
    "noisy step time",
    explanation=(
        "The windows in which the step was timed differ by more than a tenth. Either the machine has other work, or "
        "the step itself is not always the same. What is smaller than that difference cannot be told from noise, "
        "here or by any other tool."
    ),
    reads="the interquartile range of the windows is more than 10 % of their median",
    treatment=(
        "stop other work on the machine, fix the clocks, examine again; look for what the step does only sometimes"
    ),
    fix="""
    taskset -c 0-3 gobrrr examine train.py:step  # cores of its own
    sudo nvidia-smi --lock-gpu-clocks=1500  # a clock that holds
    """,
    unless="If only one finding matters, and it stands far above the noise, it stands.",
)
def noise(case: Case) -> Stake | None:
    windows = Sample(case.exam.window_step_s)
    if windows.spread <= NOISY_SPREAD:
        return None
    return Stake(
        None,
        None,
        (
            (
                f"{len(windows.values)} windows of {seconds(min(windows.values))} to {seconds(max(windows.values))}, "
                f"the middle half within {percent(windows.spread, 0)}"
            ),
        ),
    )
