"""B109: copies between host and device from memory that the device cannot read by itself."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import seconds

NOTABLE = 0.02
"""Of the step. A loss that is read is a copy too, of four bytes."""


@finding(
    "B109",
    "blocking copies",
    explanation=(
        "Ordinary host memory may be paged out, so the driver first copies it to a place of its own, a piece at a "
        "time, and the host waits meanwhile. From pinned memory the device reads by itself, while kernels run. At "
        "stake is the time of these copies in which no kernel ran, on both sides."
    ),
    reads="copies that the profiler calls pageable, exposed for 2 % of the step or more",
    treatment=(
        "pin_memory=True in the loader, .to(device, non_blocking=True); the next batch while this one is worked on"
    ),
    fix="""
    loader = DataLoader(data, batch_size, pin_memory=True)
    batch = batch.to(device, non_blocking=True)
    """,
    unless="Pinned memory is taken from everybody else on the host; for a few kilobytes it is not worth it.",
)
def blocking_copies(case: Case) -> Stake | None:
    copies = [one for one in case.kernels if one.kernel.kind is KernelKind.TRANSFER and "Pageable" in one.kernel.name]
    exposed_s = sum(one.seconds for one in copies)
    if exposed_s < NOTABLE * case.exam.step_s:
        return None
    evidence = f"{len(copies)} copies from or to pageable memory take {seconds(exposed_s)} in which no kernel runs"
    return case.saving(exposed_s, (evidence, *by_place(copies)), host_s=exposed_s)
