"""B202: attention that writes its scores to memory."""

from collections.abc import Iterator

from gobrrr.diagnose.findings.attention import above_flash, took_s
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.grouping import grouping


@finding(
    "B202",
    "unfused attention",
    explanation=(
        "The scores, a number for every pair of tokens, go to memory and back between product, softmax and product. "
        "A flash kernel keeps them on the chip. Counted is all time above the floor of that, so at most this is "
        "gained."
    ),
    reads=(
        "a product, a softmax and a product of the program, joined by their tensors, that ran as kernels of their own"
    ),
    treatment="torch.nn.functional.scaled_dot_product_attention",
    fix="""
    y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    # was: ((q @ k.mT) * scale).masked_fill(future, -inf).softmax(-1) @ v
    model.set_attn_implementation("sdpa")  # in transformers
    """,
    unless="Whoever needs the weights themselves, to show or to prune them, has to write them out.",
)
def unfused_attention(case: Case) -> Stake | None:
    return above_flash(case, written_out(case))


def written_out(case: Case) -> Iterator[tuple[int, ...]]:
    """Ops of the groups of each product-softmax-product, and of its gradient, that ran."""
    if case.exam.program is None or case.flow is None:
        return
    for attention in grouping(case.exam.program.ops, case.flow).attentions:
        for op in (attention.output, attention.backward):
            if op is not None and op in case.group_of and took_s(case, case.group_of[op].group.ops):
                yield case.group_of[op].group.ops
