"""B101: the device waits for the host, all step long."""

from gobrrr.diagnose.counterfactual import at_stake
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import percent, seconds


@finding(
    "B101",
    "host-bound step",
    explanation=(
        "Python and the dispatcher need longer to ask for the kernels than the device needs to run them, so faster "
        "kernels would change nothing. At stake is what is left when the host costs nothing: then the device limits."
    ),
    reads="the host needs nine tenths of the step and the device does not",
    treatment="torch.compile, a CUDA graph (mode='reduce-overhead'), fused or foreach optimizers, a larger batch",
    fix="""
    model = torch.compile(model, mode="reduce-overhead")  # one launch for all kernels of a graph
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    """,
    unless=(
        "Shapes or branches that change from step to step break graphs. On a CPU the host is the device, and what "
        "helps is fewer, larger ops."
    ),
)
def host_bound(case: Case) -> Stake | None:
    host_s = case.sides.host_s
    if case.limiter != "host" or host_s is None:
        return None
    idle = max(0.0, 1 - case.busy_s / case.exam.step_s)
    return Stake(
        at_stake(case.sides, host_less_s=host_s),
        0.0,
        (
            f"the host needs {seconds(host_s)}, the device {seconds(case.sides.device_s)}",
            _launches(len(case.kernels), host_s),
            f"the device is idle for {percent(idle)} of the step",
        ),
    )


def _launches(number: int, host_s: float) -> str:
    each = f", {seconds(host_s / number)} of the host's time each" if number else ""
    return f"{number} kernels a step{each}"
