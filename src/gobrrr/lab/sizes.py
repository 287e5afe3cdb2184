"""How large the experiments are: enough to leave the caches, small enough that a person waits."""

from dataclasses import dataclass

from gobrrr.timing.steady import StepEffort


@dataclass(frozen=True, slots=True, kw_only=True)
class Sizes:
    effort: StepEffort
    elements: int
    """Of a pointwise op that is to be limited by memory."""
    repeats: tuple[int, ...]
    """Multiplications per element."""
    op_elements: tuple[int, ...]
    """Of one addition, from nothing but overhead to nothing but bytes."""
    ops: int
    """Additions in a step of that sweep."""
    python_additions: int
    small_width: int
    small_depth: int
    small_batches: tuple[int, ...]
    large_width: int
    large_depth: int
    large_batches: tuple[int, ...]
    product: tuple[int, int, int]
    """Rows, inner and columns of the product whose epilogue is fused."""
    half: str
    """The type that models compute in."""
    bert_batch: int
    bert_length: int
    bert_hidden: int
    bert_layers: int


CUDA = Sizes(
    effort=StepEffort(warmup_steps=20, warmup_s=1, window_s=0.02, window_steps=5, windows=10, budget_s=0.5),
    elements=1 << 28,
    repeats=(1, 4, 16, 32, 64, 128, 256, 512),
    op_elements=(1 << 10, 1 << 16, 1 << 20, 1 << 22, 1 << 24, 1 << 26),
    ops=50,
    python_additions=100_000,
    small_width=256,
    small_depth=16,
    small_batches=(1, 8, 64, 512),
    large_width=8192,
    large_depth=4,
    large_batches=(1, 4, 16, 64, 256, 1024),
    product=(16384, 1024, 4096),
    half="bfloat16",
    bert_batch=8,
    bert_length=512,
    bert_hidden=1024,
    bert_layers=24,
)

CPU = Sizes(
    effort=StepEffort(warmup_steps=8, warmup_s=1, window_s=0.02, window_steps=1, windows=10, budget_s=1),
    elements=1 << 24,
    repeats=(1, 4, 16, 32, 48, 64, 128),
    op_elements=(1 << 8, 1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22),
    ops=50,
    python_additions=100_000,
    small_width=32,
    small_depth=16,
    small_batches=(1, 4, 16, 64, 256),
    large_width=4096,
    large_depth=1,
    large_batches=(1, 4, 16, 64, 256),
    product=(4096, 512, 2048),
    half="float32",  # a CPU without AMX multiplies halves at a tenth of its fp32 rate
    bert_batch=1,
    bert_length=512,
    bert_hidden=1024,
    bert_layers=2,
)
