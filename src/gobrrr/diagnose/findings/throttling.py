"""B503: a device that was held back while it was measured."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding


@finding(
    "B503",
    "throttled device",
    explanation=(
        "The device was slower than it can be while the step was timed: heat, a power limit below the default, "
        "clocks set low, or another process on it. The step is measured as it was, but against ceilings that it "
        "could not reach."
    ),
    reads="clock event reasons, power limit, temperature, clock and processes, as the driver tells them after timing",
    treatment="see nvidia-smi -q -d PERFORMANCE,CLOCK,POWER; cool it, restore the limit, have it alone; examine again",
    fix="""
    sudo nvidia-smi --power-limit=700 --reset-gpu-clocks
    nvidia-smi -q -d PERFORMANCE
    """,
    unless=(
        "A power cap that large products run into for a moment is how a GPU is meant to work, and is not counted here."
    ),
)
def throttling(case: Case) -> Stake | None:
    doubts = case.exam.device_doubts
    return Stake(None, None, tuple(f"{doubt.what}: {doubt.remedy}" for doubt in doubts)) if doubts else None
