"""B108: a step that waits for memory to be given and taken back."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.timing.idle import Cause
from gobrrr.units import percent, seconds

NOTABLE = 0.02
"""Of the step. In a steady step the allocator hands out what it has kept, and asks the driver for nothing."""


@finding(
    "B108",
    "allocator stalls",
    explanation=(
        "The driver was asked for memory, or given some back, in the middle of the step. Such calls wait for the "
        "device and take as long as a hundred kernels. torch keeps freed memory so that a steady step needs none of "
        "them."
    ),
    reads="idle time inside cudaMalloc, cudaFree and the like of 2 % of the step or more",
    treatment="no torch.cuda.empty_cache() in the loop; PYTORCH_ALLOC_CONF=expandable_segments:True; a smaller peak",
    fix="""
    # take torch.cuda.empty_cache() and gc.collect() out of the loop, or:
    PYTORCH_ALLOC_CONF=expandable_segments:True python train.py
    """,
    unless="Between two phases, as training and evaluation, giving memory back once is harmless.",
)
def allocator(case: Case) -> Stake | None:
    waited_s = case.idle_s(Cause.ALLOCATION)
    if case.exam.serial or waited_s < NOTABLE * case.exam.step_s:
        return None
    retries = case.exam.allocation_retries
    return case.saving(
        0.0,
        (
            (
                f"{seconds(waited_s)} idle while memory was allocated or freed, "
                f"{percent(waited_s / case.exam.step_s)} of the step"
            ),
            *([f"the allocator ran out {retries} times and gave back what it kept"] if retries else []),
        ),
        host_s=waited_s,
    )
