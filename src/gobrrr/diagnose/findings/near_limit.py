"""B601: a step that needs nearly all of the memory."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import capacity, percent

NEAR = 0.9
"""Of the memory, alive at once. What is left the allocator needs for gaps, and libraries for workspaces."""


@finding(
    "B601",
    "memory near the limit",
    explanation=(
        "At its peak the step holds nearly all of the device's memory. The next longer batch fails, and before that "
        "the allocator stalls the step by giving memory back and asking again (B108). What that will cost is not "
        "known."
    ),
    reads=(
        "the counted peak of living tensors is 90 % of the device's memory or more, or the allocator ran out while "
        "timing"
    ),
    treatment="recompute activations (checkpoint), bf16, a fused loss, a smaller batch with gradient accumulation",
    fix="""
    for block in model.blocks:
        x = checkpoint(block, x, use_reentrant=False)
    """,
    unless="A step of fixed shapes that ran for an hour will run for a day.",
)
def near_limit(case: Case) -> Stake | None:
    peak, memory, retries = case.exam.peak_memory_bytes, case.exam.ceilings.memory_bytes, case.exam.allocation_retries
    if peak is None or not memory or (peak < NEAR * memory and not retries):
        return None
    saved = None if case.exam.program is None else case.exam.program.memory.saved_bytes
    return Stake(
        None,
        None,
        (
            f"{capacity(peak)} alive at once of {capacity(memory)}, {percent(peak / memory, 0)}",
            *([f"{capacity(saved)} of it are activations saved for the backward pass"] if saved else []),
            *([f"the allocator ran out {retries} times and gave back what it kept"] if retries else []),
        ),
    )
