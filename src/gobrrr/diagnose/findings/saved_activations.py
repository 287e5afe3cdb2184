"""B209: activations kept for the backward pass that a few pointwise ops would give back."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.flow import Flow, Value
from gobrrr.units import capacity, percent, seconds
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.tally import alike

MOST = 0.5
"""Of what is saved. In a transformer of fused layers a third is: its norms and activations give back their inputs."""

SHOWN = 3


@finding(
    "B209",
    "activations saved that recomputation would save",
    explanation=(
        "Pointwise results are written in the forward pass and read again in the backward, although what they were "
        "made of is kept as well. To compute them again costs arithmetic that a kernel limited by memory has to "
        "spare, and saves the write, the read and the memory in between. Counted are those bytes at the measured "
        "bandwidth."
    ),
    reads=("more than half of the saved bytes are results of pointwise ops and norms of others that are saved"),
    treatment="torch.compile, which chooses what to recompute; torch.utils.checkpoint around the activation; fused ops",
    fix="""
    y = F.gelu(x, approximate="tanh")  # saves x. Written out in eight ops it saves eight tensors
    y = checkpoint(block, x, use_reentrant=False)
    """,
    unless="Products and attention are dear to recompute: a checkpoint around a whole block costs a third more time.",
)
def saved_activations(case: Case) -> Stake | None:
    program, bandwidth = case.exam.program, case.exam.ceilings.dram_bytes_per_s
    if program is None or case.flow is None or not bandwidth or case.exam.dispatched:
        return None
    saved = list(_saved(program.ops, case.flow))
    free = _recomputable(program.ops, case.flow, saved)
    saved_bytes, free_bytes = (sum(value.access.nbytes for value in some) for some in (saved, free))
    if free_bytes <= MOST * saved_bytes:
        return None
    moved_s = min(2 * free_bytes / bandwidth, case.busy_s)
    return case.saving(
        moved_s,
        (
            (
                f"{capacity(free_bytes)} of {capacity(saved_bytes)} saved activations "
                f"({percent(free_bytes / saved_bytes, 0)}) could be recomputed; to write and read them takes "
                f"{seconds(moved_s)}"
            ),
            *_by_module(program.ops, free),
        ),
    )


def _saved(ops: Sequence[Op], flow: Flow) -> Iterator[Value]:
    """Made in the forward pass and read in the backward."""
    for number, op in enumerate(ops):
        if op.phase is Phase.FORWARD:
            for value in flow.makes[number]:
                if any(ops[reader].phase is Phase.BACKWARD for reader in value.readers):
                    yield value


def _recomputable(ops: Sequence[Op], flow: Flow, saved: Sequence[Value]) -> list[Value]:
    """Of those, what pointwise ops and norms make of others that are there, if need be one after the other.

    Random numbers are made of nothing, and never made again.
    """
    kept = {id(value) for value in saved}
    there, again = set[int](), set[int]()
    for number, op in enumerate(ops):
        inputs = [part for read in flow.reads[number] for _, part in read.parts]
        cheap = op.phase is Phase.FORWARD and op.cls in (OpClass.ELEMENTWISE, OpClass.NORMALIZATION)
        if cheap and inputs and all(part is None or id(part) in there for part in inputs):
            again.update(id(value) for value in flow.makes[number])
        there.update(own for value in flow.makes[number] if (own := id(value)) in kept or own in again)
    return [value for value in saved if id(value) in again]


def _by_module(ops: Sequence[Op], values: Sequence[Value]) -> Iterator[str]:
    modules: defaultdict[str, float] = defaultdict(float)
    for value in values:
        op = ops[value.maker]
        modules[op.source or alike(op.module) or "line not known"] += value.access.nbytes
    most = sorted(modules.items(), key=lambda item: -item[1])
    return (f"{where}: {capacity(nbytes)}" for where, nbytes in most[:SHOWN])
