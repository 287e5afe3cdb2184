"""B105: a step that waits for its data."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.timing.idle import Cause
from gobrrr.units import percent, seconds

NOTABLE = 0.05
"""Of the step. Fetching a batch that is ready takes a fraction of a millisecond."""


@finding(
    "B105",
    "data-loader wait",
    explanation=(
        "While nothing ran on the device the host was inside the data loader. Batches that are ready when they are "
        "asked for cost nothing: other processes can make them while this one trains."
    ),
    reads="idle time inside `enumerate(DataLoader)` of 5 % of the step or more",
    treatment="DataLoader(num_workers=..., pin_memory=True, persistent_workers=True), or decode and tokenise once",
    fix="""
    loader = DataLoader(data, batch_size, num_workers=8, pin_memory=True, persistent_workers=True, prefetch_factor=4)
    for batch in loader:
        batch = batch.to(device, non_blocking=True)
    """,
    unless="Small tensors that are in memory already are fetched faster without workers than sent between processes.",
)
def data_wait(case: Case) -> Stake | None:
    waited_s = case.idle_s(Cause.DATA_LOADING)
    if waited_s < NOTABLE * case.exam.step_s:
        return None
    evidence = (
        f"{seconds(waited_s)} of idle time in the data loader, {percent(waited_s / case.exam.step_s)} of the step"
    )
    return case.saving(0.0, (evidence,), host_s=waited_s)
