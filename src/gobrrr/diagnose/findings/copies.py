"""B205: kernels that copy a tensor to have it in another order or place."""

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.timing.kernel import KernelKind
from gobrrr.units import percent, seconds
from gobrrr.work.op import Phase
from gobrrr.work.registry import canonical

COPYING = frozenset("clone contiguous copy _to_copy _reshape_copy cat stack repeat roll flip".split())

NOTABLE = 0.1
"""Of busy time. The heads of an attention are put together again by a copy, and that takes a few percent."""


@finding(
    "B205",
    "copies",
    explanation=(
        "These kernels move bytes and compute nothing: tensors made contiguous, put together, repeated. Whoever "
        "reads the copy could mostly have read the original through its strides. Counted is all their time, part of "
        "which B201 counts too, where a copy stands in a chain."
    ),
    reads="clones, concatenations and the like without a change of type that take a tenth of the busy time or more",
    treatment="expand for repeat, reshape late, write into a buffer instead of cat, layouts that the next op wants",
    fix="""
    cache[:, position] = new  # was: cache = torch.cat([cache, new], 1)
    y = x + bias.expand(n, -1)  # was: bias.repeat(n, 1)
    """,
    unless="A copy in front of a product that is read many times may pay for itself.",
)
def copies(case: Case) -> Stake | None:
    found = [one for one in case.kernels if _is_copy(one)]
    took_s = sum(one.seconds for one in found)
    if not took_s or took_s < NOTABLE * case.busy_s:
        return None
    evidence = f"{len(found)} copies take {seconds(took_s)}, {percent(took_s / case.busy_s)} of busy time"
    return case.saving(took_s, (evidence, *by_place(found)))


def _is_copy(one: Attributed) -> bool:
    op = one.op
    if op is None or one.kernel.kind is not KernelKind.COMPUTE or op.phase is Phase.OPTIMIZER:
        return False
    types = {ref.dtype for ref in (*op.inputs, *op.outputs)}
    return canonical(op.name) in COPYING and bool(op.inputs) and len(types) == 1
