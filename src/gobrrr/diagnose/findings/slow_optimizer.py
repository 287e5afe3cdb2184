"""B207: an optimizer that goes over its parameters many times."""

from collections.abc import Sequence

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import percent, seconds
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.registry import canonical

SHOWN = 4

NOTABLE = 0.05
"""Of the step, that the optimizer's kernels or their dispatch take at the least."""


@finding(
    "B207",
    "unfused optimizer",
    explanation=(
        "The update is written as a dozen passes over parameters, gradients and state, and without foreach as a "
        "dozen ops for every single tensor. A fused kernel reads and writes each number once for many tensors: 28 "
        "bytes a parameter for AdamW in fp32. At stake is the device time above that and the dispatch of all ops but "
        "a few; B101 and B103 count the same host seconds."
    ),
    reads="kernels of the optimizer's phase that are no fused ones, taking 5 % of the step on the device or to ask for",
    treatment="fused=True; where there is no fused one, foreach=True or torch.compile of its step",
    fix="""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    """,
    unless=(
        "A fused optimizer has to have all of a group's tensors on one device. Where the step is long and the model "
        "small, the gain is too."
    ),
)
def slow_optimizer(case: Case) -> Stake | None:
    ops = () if case.exam.program is None else case.exam.program.ops
    passes = [one for one in case.kernels if _is_pass(one, ops)]
    launches = len({one.kernel.fused_from for one in passes})
    took_s, asking_s = sum(one.seconds for one in passes), launches * case.op_s
    if max(took_s, asking_s) < NOTABLE * case.exam.step_s:
        return None
    floor_s = min(took_s, _floor_s(case, ops))
    names = dict.fromkeys(canonical(one.op.name) for one in passes if one.op is not None)
    return case.saving(
        took_s - floor_s,
        (
            (
                f"{launches} ops of the optimizer take {seconds(took_s)}, {percent(took_s / case.exam.step_s, 0)} of "
                f"the step; one pass would take {seconds(floor_s)}"
            ),
            ", ".join(list(names)[:SHOWN]) + (", …" if len(names) > SHOWN else ""),
        ),
        host_s=asking_s,
    )


def _is_pass(one: Attributed, ops: Sequence[Op]) -> bool:
    """A kernel of one op of the optimizer. What a compiler made of several is fused; Muon's products are products."""
    done = one.kernel.fused_from or ()
    if len(done) != 1 or ops[done[0]].phase is not Phase.OPTIMIZER:
        return False
    return "_fused_" not in ops[done[0]].name and ops[done[0]].cls is not OpClass.CONTRACTION


def _floor_s(case: Case, ops: Sequence[Op]) -> float:
    """Of the optimizer's groups, each done in one pass."""
    groups = () if case.fused is None else case.fused.groups
    return sum(one.seconds or 0.0 for one in groups if all(ops[op].phase is Phase.OPTIMIZER for op in one.group.ops))
