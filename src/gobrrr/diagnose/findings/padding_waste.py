"""B305: work on tokens that are none."""

from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import percent, seconds
from gobrrr.work.op import Phase

NOTABLE = 0.2
"""Of the tokens. Sorted into batches of a kind, sentences differ by less."""


@finding(
    "B305",
    "padding waste",
    explanation=(
        "All rows of a batch are as long as its longest one, and the rest is padding that every layer works on and "
        "the loss leaves out. Counted is the padding's share of the device's time outside the optimizer; attention "
        "over pairs of tokens loses more than that."
    ),
    reads="the attention mask among the workload's inputs: a fifth or more of its places are marked as padding",
    treatment="batches of sequences of like length, several sequences packed into a row, nested tensors for attention",
    fix="""
    batches = sorted(texts, key=len)  # neighbours are of like length
    tokenizer(batch, padding="longest")  # was: padding="max_length"
    """,
    unless="Fixed sizes keep compiled graphs valid: a few lengths to pad to are a fair price.",
)
def padding_waste(case: Case) -> Stake | None:
    padding = case.exam.padding
    if padding is None or padding < NOTABLE:
        return None
    worked_s = sum(one.seconds for one in case.kernels if one.op is None or one.op.phase is not Phase.OPTIMIZER)
    return case.saving(
        padding * worked_s,
        (f"{percent(padding)} of the tokens are padding, in {seconds(worked_s)} of the device's time a step",),
    )
