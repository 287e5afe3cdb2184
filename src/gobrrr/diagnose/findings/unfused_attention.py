"""B202: attention that writes its scores to memory."""

from collections.abc import Iterable, Iterator

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.grouping import grouping
from gobrrr.units import seconds

SHOWN = 4
"""Lines listed: the layers of a model share theirs."""


@finding(
    "B202",
    "unfused attention",
    explanation=(
        "The scores, a number for every pair of tokens, go to memory and back between product, softmax and product. A "
        "flash kernel keeps them on the chip. Counted is all time above the floor of that, so at most this is gained."
    ),
    treatment="torch.nn.functional.scaled_dot_product_attention; under torch.compile, without a dense mask",
)
def unfused_attention(case: Case) -> Stake | None:
    """By its program, where the products stand apart, or by its kernels, where a compiler took a flash op apart."""
    groups = {*_taken_apart(case), *_written_out(case)}
    known = [ops for ops in groups if case.group_of[min(ops)].seconds is not None]
    took_s = sum(_took_s(case, ops) for ops in known)
    floor_s = sum(_floor_s(case, ops) for ops in known)
    return case.saving(took_s - floor_s, _evidence(case, known, took_s, floor_s))


def _written_out(case: Case) -> Iterator[tuple[int, ...]]:
    """Ops of the groups of each product-softmax-product, and of its gradient, that ran."""
    if case.exam.program is None or case.flow is None:
        return
    for attention in grouping(case.exam.program.ops, case.flow).attentions:
        for op in (attention.output, attention.backward):
            if op is not None and op in case.group_of and _took_s(case, case.group_of[op].group.ops):
                yield case.group_of[op].group.ops


def _taken_apart(case: Case) -> Iterator[tuple[int, ...]]:
    """A flash op of the program of which a softmax of its own ran as a kernel."""
    ops = () if case.exam.program is None else case.exam.program.ops
    for one in case.kernels:
        for op in one.kernel.fused_from or ():
            if "attention" in ops[op].name and "softmax" in one.kernel.name and op in case.group_of:
                yield case.group_of[op].group.ops


def _took_s(case: Case, ops: Iterable[int]) -> float:
    """Of the units that do nothing else."""
    inside = set(ops)
    return sum(took_s for unit, took_s in case.units.items() if inside.issuperset(unit))


def _floor_s(case: Case, ops: tuple[int, ...]) -> float:
    """Of one flash kernel for all of them: its work, but no less than the shortest one takes."""
    shortest_s = case.exam.ceilings.shortest_kernel_class_s.get("attention", 0.0)
    return max(case.group_of[min(ops)].seconds or 0.0, shortest_s)


def _evidence(case: Case, groups: list[tuple[int, ...]], took_s: float, floor_s: float) -> Iterator[str]:
    yield f"{len(groups)} in a step take {seconds(took_s)}; flash kernels' floor is {seconds(floor_s)}"
    assert case.exam.program is not None or not groups, "there are no groups without a program"
    ops = () if case.exam.program is None else case.exam.program.ops
    lines = dict.fromkeys(ops[min(group)].source for group in sorted(groups))
    yield from [line for line in lines if line is not None][:SHOWN]
