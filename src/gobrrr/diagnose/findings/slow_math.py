"""B301: products in fp32 on a machine that has faster units for them."""

from collections.abc import Mapping

from gobrrr.diagnose.attribute import Attributed, shortest_s
from gobrrr.diagnose.findings.finding import Case, Stake, finding
from gobrrr.units import flops_per_s, seconds, times
from gobrrr.work.op import OpClass

FASTER = 1.5
"""Below this a mode is not worth its digits, and a measured ratio of rates is not a ratio of times. Units made for the
purpose are 5 to 16 times as fast; a CPU without them runs bf16 slower than fp32 and stays far away on the other side.
"""

MODES = ("tf32", "bf16", "fp16")
"""The least change first: TF32 leaves every tensor as it is."""


@finding(
    "B301",
    "fp32 matmuls where faster units exist",
    explanation=(
        "These products run in full fp32, outside the units that the machine has for lower precision. TF32 keeps "
        "fp32 tensors and rounds the factors to 10 bits; bf16 autocast halves their bytes as well."
    ),
    reads="products counted as fp32, on a machine whose tf32, bf16 or fp16 was measured at 1.5 times the rate or more",
    treatment="torch.set_float32_matmul_precision('high') for TF32, or torch.autocast(dtype=torch.bfloat16)",
    fix="""
    torch.set_float32_matmul_precision("high")
    # or, around forward and loss:
    with torch.autocast(device_type, dtype=torch.bfloat16):
        loss = model(**batch).loss
    """,
    unless=(
        "Both round the factors: 10 bits in TF32, 7 in bf16. Solvers, physics and long sums may need what fp32 "
        "gives, and a CPU without units for it multiplies bf16 more slowly than fp32."
    ),
)
def slow_math(case: Case) -> Stake | None:
    rates = case.exam.ceilings.matmul_flops_per_s
    mode = faster_mode(rates)
    slow = [one for one in case.kernels if _is_fp32_product(one)]
    if mode is None or not slow:
        return None
    speedup = rates[mode] / rates["fp32"]
    saved_s = sum(one.seconds - _at_best_s(one, case, speedup) for one in slow)
    took_s = sum(one.seconds for one in slow)
    return case.saving(
        saved_s,
        (
            f"{len(slow)} kernels in fp32 take {seconds(took_s)}",
            f"fp32 {flops_per_s(rates['fp32'])}, {mode} {flops_per_s(rates[mode])}: {times(speedup)}",
        ),
    )


def faster_mode(rates: Mapping[str, float]) -> str | None:
    """The first that was measured and is faster by enough; an unmeasured one is not promised."""
    fp32 = rates.get("fp32")
    return next((mode for mode in MODES if fp32 and rates.get(mode, 0) >= FASTER * fp32), None)


def _is_fp32_product(one: Attributed) -> bool:
    work = one.work
    return one.cls is OpClass.CONTRACTION and work is not None and set(work.matrix) == {"fp32"}


def _at_best_s(one: Attributed, case: Case, speedup: float) -> float:
    """The same fraction of the faster rate, but no less than its bytes or the shortest kernel take, nor more than now.

    All bytes are charged to memory: some may come from the cache, and the promise is then too small.
    """
    work, ceilings = one.work, case.exam.ceilings
    moved_s = work.bytes / ceilings.dram_bytes_per_s if work is not None and ceilings.dram_bytes_per_s else 0.0
    return min(one.seconds, max(one.seconds / speedup, moved_s, shortest_s(one.kernel, one.cls, ceilings)))
