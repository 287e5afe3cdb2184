"""B208: a loss over a large vocabulary that goes over the logits again and again, in fp32."""

from collections.abc import Iterable

from gobrrr.diagnose.attribute import Attributed
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.diagnose.findings.places import by_place
from gobrrr.units import moved, percent, seconds
from gobrrr.work.op import Op, OpClass, TensorRef
from gobrrr.work.registry import canonical

VOCABULARY = 4096
"""Classes from which on a row of logits is more than the rest of a token's activations in the head."""

NOTABLE = 0.02
"""Of busy time, that the passes over the logits take at the least."""

LEAST_PASSES = 3
"""The loss reads the logits; their gradient reads them and writes itself. In two bytes a number where they can be."""


@finding(
    "B208",
    "fp32 logits and loss",
    explanation=(
        "The logits, a number for every token and every word, are kept in fp32 and gone over by log-softmax, loss, "
        "both gradients and the casts between, four bytes each time. Compiled with its loss the head reads them once "
        "forward and once backward, and chunked it never holds them all. Counted is the time above three passes of "
        "two bytes, part of which B201 counts too."
    ),
    reads=(
        "kernels besides products on fp32 tensors of the logits' size, 4096 classes or more, from 2 % of busy time on"
    ),
    treatment="compile head and loss together, as `gobrrr treat` does; F.linear_cross_entropy or chunks for the memory",
    fix="""
    @torch.compile
    def head_loss(hidden, labels):
        return F.cross_entropy(head(hidden).flatten(0, 1), labels.flatten())  # no .float()
    """,
    unless="Chunking makes the head's products smaller: it saves memory before it saves time, and loses both on a CPU.",
)
def logits_loss(case: Case) -> Stake | None:
    logits = largest_logits(one.op for one in case.kernels if one.op is not None)
    if logits is None or case.exam.ceilings.dram_bytes_per_s is None:
        return None
    passes = [one for one in case.kernels if _goes_over(one, logits)]
    took_s = sum(one.seconds for one in passes)
    if not took_s or took_s < NOTABLE * case.busy_s:
        return None
    floor_s = LEAST_PASSES * 2 * logits.numel / case.exam.ceilings.dram_bytes_per_s
    return case.saving(
        took_s - floor_s,
        (
            f"logits of {' × '.join(str(size) for size in logits.shape)} in fp32 are {moved(logits.nbytes)}",
            (
                f"{len(passes)} kernels over them take {seconds(took_s)}, {percent(took_s / case.busy_s)} of busy "
                f"time; three passes of two bytes would take {seconds(floor_s)}"
            ),
            *by_place(passes),
        ),
    )


def largest_logits(ops: Iterable[Op]) -> TensorRef | None:
    """What the largest log-softmax in fp32 reads."""
    read = [op.inputs[0] for op in ops if canonical(op.name) == "_log_softmax" and op.inputs]
    wide = [ref for ref in read if ref.dtype == "fp32" and ref.shape and ref.shape[-1] >= VOCABULARY]
    return max(wide, key=lambda ref: ref.numel, default=None)


def _goes_over(one: Attributed, logits: TensorRef) -> bool:
    """Also a cast to or from another type, and a gradient in another shape."""
    if one.op is None or one.cls is OpClass.CONTRACTION:
        return False
    wide = [ref for ref in (*one.op.inputs, *one.op.outputs) if ref.shape[-1:] == logits.shape[-1:]]
    return any(ref.dtype == "fp32" and ref.numel == logits.numel for ref in wide)
