"""B103: kernels that take less time than it takes to ask for them."""

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import percent, seconds

MOST = 0.5
"""Of a step's kernels: if fewer are tiny, the others decide how long it takes."""

NOTABLE = 0.25
"""Of the step, that asking for the tiny ones takes at the least."""


@finding(
    "B103",
    "many tiny kernels",
    explanation=(
        "Each of these kernels is done before the host could have asked for the next one, and what a kernel takes at "
        "the least is most of its time. Done in fewer, larger ones, the same work costs neither. At stake is what "
        "asking for them takes the host and what the shortest kernel takes the device; B101 counts the same host "
        "seconds."
    ),
    reads=(
        "more than half of the kernels are shorter than one eager dispatch was measured to take, and to ask for "
        "them all takes a quarter of the step"
    ),
    treatment="larger batches, ops on whole tensors, torch.compile; a CUDA graph where they must stay small",
    fix="""
    y = torch.stack(parts).sin().sum(0)  # was: sum(part.sin() for part in parts)
    step = torch.compile(step, mode="reduce-overhead")
    """,
    unless="A step of a few microseconds that runs once an hour is none to tune.",
)
def tiny_kernels(case: Case) -> Stake | None:
    tiny = [one for one in case.kernels if _is_tiny(one, case.dispatch_s)]
    asking_s = len(tiny) * case.op_s
    if len(tiny) <= MOST * len(case.kernels) or asking_s < NOTABLE * case.exam.step_s:
        return None
    latency_s = sum(one.parts.latency for one in tiny if one.parts is not None)
    return case.saving(
        latency_s,
        (
            f"{len(tiny)} of {len(case.kernels)} kernels take less than the {seconds(case.dispatch_s)} of a dispatch",
            (
                f"together {seconds(sum(one.seconds for one in tiny))} on the device, {seconds(asking_s)} to ask for "
                f"({percent(asking_s / case.exam.step_s, 0)} of the step)"
            ),
            *by_place(tiny),
        ),
        host_s=asking_s,
    )


def _is_tiny(one: Attributed, dispatch_s: float) -> bool:
    return one.kernel.kind is KernelKind.COMPUTE and one.seconds < dispatch_s
