"""B204: kernels that do nothing but change the type of numbers."""

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import percent, seconds
from gobrrr.work.op import Phase
from gobrrr.work.registry import canonical

FLOATS = frozenset({"fp64", "fp32", "bf16", "fp16", "fp8"})

NOTABLE = 0.1
"""Of busy time. Autocast over fp32 weights casts each of them once a step, and that is meant to be."""


@finding(
    "B204",
    "casts",
    explanation=(
        "These kernels read tensors and write the same numbers in another type. A kernel that is there anyway could "
        "read or write the other type for nothing. Counted is all their time, part of which B201 counts too, where a "
        "cast stands in a chain."
    ),
    reads="copies between floating-point types, each a kernel of its own, that take a tenth of the busy time or more",
    treatment="keep one type from layer to layer; weights in bf16 with fp32 copies in the optimizer; torch.compile",
    fix="""
    model.to(torch.bfloat16)  # was: .float() and .bfloat16() around every layer
    x = norm(x)  # was: norm(x.float()).to(x.dtype): norms add in fp32 by themselves
    """,
    unless="Sums and losses in fp32 are there for their digits. Weights in bf16 change what small updates do.",
)
def casts(case: Case) -> Stake | None:
    found = [one for one in case.kernels if _is_cast(one)]
    took_s = sum(one.seconds for one in found)
    if not took_s or took_s < NOTABLE * case.busy_s:
        return None
    evidence = f"{len(found)} casts take {seconds(took_s)}, {percent(took_s / case.busy_s)} of busy time"
    return case.saving(took_s, (evidence, *by_place(found)))


def _is_cast(one: Attributed) -> bool:
    op = one.op
    if op is None or one.kernel.kind is not KernelKind.COMPUTE or op.phase is Phase.OPTIMIZER:
        return False
    if canonical(op.name) not in {"_to_copy", "copy"}:
        return False
    return len(FLOATS.intersection(ref.dtype for ref in (*op.inputs, *op.outputs))) > 1
