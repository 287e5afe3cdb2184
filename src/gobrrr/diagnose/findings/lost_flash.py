"""B203: flash attention that a compiler took apart."""

from collections.abc import Iterator

from gobrrr.diagnose.findings.attention import above_flash
from gobrrr.diagnose.findings.finding import Case, Stake, finding


@finding(
    "B203",
    "flash attention lost under compile",
    explanation=(
        "The program calls a flash kernel, but in the compiled step a softmax of its own ran: the compiler took the "
        "call apart, as it does where a dense mask appears under tracing, and the scores go through memory. Counted "
        "is all time above the floor of a flash kernel, so at most this is gained."
    ),
    reads="an attention op of the program of which a kernel with a softmax in its name ran",
    treatment="compile each layer by itself, pass is_causal instead of a dense mask, or attn_implementation='sdpa'",
    fix="""
    for layer in model.encoder.layer:  # regions, each with its attention kept whole
        layer.compile()
    """,
    unless="For a handful of tokens the products are so small that the pieces are as quick.",
)
def lost_flash(case: Case) -> Stake | None:
    return above_flash(case, _taken_apart(case))


def _taken_apart(case: Case) -> Iterator[tuple[int, ...]]:
    """A flash op of the program of which a softmax of its own ran as a kernel."""
    ops = () if case.exam.program is None else case.exam.program.ops
    for one in case.kernels:
        for op in one.kernel.fused_from or ():
            if "attention" in ops[op].name and "softmax" in one.kernel.name and op in case.group_of:
                yield case.group_of[op].group.ops
