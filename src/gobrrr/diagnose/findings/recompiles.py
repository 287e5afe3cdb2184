"""B107: something that is compiled again and again."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.timing.idle import Cause
from gobrrr.units import seconds

USUAL = 1
"""The second time a size is seen to change, it is compiled once more as a variable one: that is meant to happen."""

SHOWN = 3


@finding(
    "B107",
    "recompiles",
    explanation=(
        "A compiled function holds only as long as its guards do. Here one failed again and again, and each time the "
        "function was compiled anew; after eight times torch gives up and runs it uncompiled without a word. At "
        "stake is the time inside the compiler; where torch gave up, what the compiled function would have gained is "
        "not known."
    ),
    reads="more than one recompilation until the step was timed, and idle time inside the compiler",
    treatment=(
        "mark what varies as dynamic, pass numbers as tensors, pad to a few sizes; TORCH_LOGS=recompiles says why"
    ),
    fix="""
    torch._dynamo.mark_dynamic(ids, 1)  # sequence length
    optimizer = AdamW(parameters, lr=torch.tensor(1e-4))  # a float would be a guard
    """,
    unless="A few sizes that all come early, as the last batch of an epoch, are compiled once each and then kept.",
)
def recompiles(case: Case) -> Stake | None:
    compilation = case.exam.compilation
    if compilation is None or len(compilation.recompiles) <= USUAL:
        return None
    compiling_s = case.idle_s(Cause.COMPILATION)
    evidence = (
        f"compiled again {len(compilation.recompiles)} times" + (", then given up" if compilation.gave_up else ""),
        *(f"failed: {guard}" for guard in list(dict.fromkeys(compilation.recompiles))[:SHOWN]),
    )
    if compiling_s:
        evidence = (evidence[0], f"{seconds(compiling_s)} of a step inside the compiler", *evidence[1:])
    if compilation.gave_up:
        return Stake(None, None, evidence)
    return case.saving(0.0, evidence, host_s=compiling_s) or Stake(0.0, 0.0, evidence)
