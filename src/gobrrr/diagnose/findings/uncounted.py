"""B505: time in kernels whose work nobody counted."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import percent, seconds

NOTABLE = 0.1
"""Of busy time: a tenth more or less does not change which regime leads."""


@finding(
    "B505",
    "uncounted work",
    explanation=(
        "For these kernels there is no formula, so their floor is unknown and whatever they hide is not found. A "
        "formula of a line makes them count like all others."
    ),
    reads="kernels whose op nobody knows how to count, or that no op asked for, that take a tenth of busy time or more",
    treatment="register a formula for the op: @gobrrr.formula('mylib::op', cls='elementwise')",
    fix="""
    @gobrrr.formula("mylib::swiglu", cls="elementwise")
    def swiglu(call):
        return counted(call, vector_flops=4 * call.out.numel, vector={"exp": call.out.numel})
    """,
    unless="Kernels that another process or a library of the driver's runs are none of the step's.",
)
def uncounted(case: Case) -> Stake | None:
    found = [one for one in case.kernels if one.kernel.kind is KernelKind.COMPUTE and one.work is None]
    took_s = sum(one.seconds for one in found)
    if case.exam.program is None or not took_s or took_s < NOTABLE * case.busy_s:
        return None
    evidence = (
        f"{len(found)} kernels of unknown work take {seconds(took_s)}, {percent(took_s / case.busy_s)} of busy time"
    )
    return Stake(None, None, (evidence, *by_place(found)))
