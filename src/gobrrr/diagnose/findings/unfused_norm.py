"""B210: a norm written out in pointwise ops and a mean."""

from collections.abc import Iterator, Sequence

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.unfused_pointwise import Chain, as_one
from gobrrr.diagnose.flow import Flow
from gobrrr.units import seconds
from gobrrr.work.op import Op, Phase
from gobrrr.work.registry import canonical

ROOTS = frozenset({"rsqrt", "sqrt"})
MEANS = frozenset({"mean", "var", "std", "sum", "var_mean", "linalg_vector_norm"})
BEFORE = frozenset({"add", "clamp", "clamp_min", "mul", "div", "pow", "sub", "square", "_to_copy"})
"""What stands between the mean and its root, or makes what the mean is taken of."""

SHOWN = 3


@finding(
    "B210",
    "norm not fused",
    explanation=(
        "Square, mean, root, product: a norm in pieces reads and writes its rows five times or more, where a kernel "
        "of its own reads them once and writes them once. Counted is the share of time that moves bytes between the "
        "pieces, which B201 counts too."
    ),
    reads="a root of a row-wise mean that scales the rows it came from, run as three kernels or more",
    treatment="F.rms_norm, F.layer_norm, F.normalize; torch.compile makes one kernel of the pieces",
    fix="""
    y = F.rms_norm(x, (width,), weight, eps)  # was: x * (x.pow(2).mean(-1, keepdim=True) + eps).rsqrt() * weight
    """,
    unless="Compiled, the pieces are one kernel already, and a hand-made kernel in their place may keep others apart.",
)
def unfused_norm(case: Case) -> Stake | None:
    found = list(_norms(case))
    if not found:
        return None
    took_s, saved_s = sum(chain.seconds for chain in found), sum(chain.saved_s for chain in found)
    ops = () if case.exam.program is None else case.exam.program.ops
    lines = dict.fromkeys(ops[chain.units[0][0]].source for chain in found)
    return case.saving(
        saved_s,
        (
            f"{len(found)} norms in pieces take {seconds(took_s)}, {seconds(saved_s)} less if fused",
            *[line for line in lines if line is not None][:SHOWN],
        ),
    )


def _norms(case: Case) -> Iterator[Chain]:
    program, flow = case.exam.program, case.flow
    if program is None or flow is None:
        return
    unit_of = {op: unit for unit in case.units for op in unit}
    for number, op in enumerate(program.ops):
        if canonical(op.name) in ROOTS and op.phase is not Phase.OPTIMIZER:
            members = _members(program.ops, flow, number)
            units = tuple(dict.fromkeys(unit_of[member] for member in members if member in unit_of))
            chain = as_one(case, flow, units) if len(units) > 2 else None
            if chain is not None and chain.saved_s > 0:
                yield chain


def _members(ops: Sequence[Op], flow: Flow, root: int) -> list[int]:
    """From what the mean is taken of to what the root scales; nothing if there is no mean, or nothing is scaled."""
    before = list(_before(ops, flow, root))
    means = [op for op in before if canonical(ops[op].name) in MEANS]
    rows = max((ref.numel for op in means for ref in ops[op].inputs), default=0)
    scaled = [reader for value in flow.makes[root] for reader in value.readers if _scales(ops[reader], rows)]
    return sorted({*before, root, *scaled}) if means and scaled else []


def _before(ops: Sequence[Op], flow: Flow, op: int) -> Iterator[int]:
    """Up through the mean to the op that feeds it, if that is one of a norm's own."""
    for value in flow.values_read(op):
        maker = value.maker
        if canonical(ops[maker].name) in MEANS | BEFORE and ops[maker].phase is ops[op].phase:
            yield maker
            if canonical(ops[op].name) not in MEANS:
                yield from _before(ops, flow, maker)


def _scales(op: Op, rows: int) -> bool:
    return canonical(op.name) in {"mul", "div"} and bool(op.outputs) and op.outputs[0].numel == rows and rows > 1
