"""Small models to examine, each with a disease that a finding names, and a healthy twin that does the same work.

Of a patient's file this package knows the name only: they need torch, and a list of them does not.
"""

from dataclasses import dataclass
from pathlib import Path

BOTH, CUDA = ("cpu", "cuda"), ("cuda",)


@dataclass(frozen=True, slots=True)
class Patient:
    """A file of this folder whose functions `sick` and `healthy` make the workloads."""

    code: str
    """Of the finding that names its disease."""
    name: str
    about: str
    """What the sick one does."""
    devices: tuple[str, ...] = BOTH
    """Where the disease exists."""
    batch_test: bool = False
    """Whether it takes twice the batch to see it."""

    def target(self, twin: str) -> str:
        """FILE.py:NAME of the sick or the healthy one."""
        return f"{Path(__file__).parent / self.name}.py:{twin}"


ALL = (
    Patient("B101", "host_bound", "keeps its statistics in Python lists"),
    Patient("B102", "sync_points", "reads a norm after every layer", CUDA),
    Patient("B103", "tiny_kernels", "updates four hundred small tensors one by one"),
    Patient("B104", "python_loop", "multiplies the heads of a batch one by one"),
    Patient("B105", "data_wait", "decompresses its batch between the steps"),
    Patient("B106", "graph_breaks", "calls an uncompiled function between compiled layers"),
    Patient("B107", "recompiles", "is compiled with a label that is another one in every step"),
    Patient("B108", "allocator", "empties the allocator's cache in every step", CUDA),
    Patient("B109", "blocking_copies", "copies its batch from ordinary memory", CUDA),
    Patient("B110", "busy_idler", "adds a hundred million numbers to one place", CUDA),
    Patient("B201", "unfused_pointwise", "scales, shifts and clips in three ops"),
    Patient("B202", "unfused_attention", "writes attention out"),
    Patient("B203", "lost_flash", "writes attention out when it is compiled"),
    Patient("B204", "casts", "goes to another type and back around every norm"),
    Patient("B205", "copies", "appends to a cache by concatenation"),
    Patient("B206", "strided_access", "adds a transposed matrix"),
    Patient("B207", "slow_optimizer", "updates its parameters one by one, in a dozen ops each"),
    Patient("B208", "logits_loss", "takes the loss of a large vocabulary in fp32"),
    Patient("B209", "saved_activations", "writes its activation out in eight ops"),
    Patient("B210", "unfused_norm", "writes its norm out"),
    Patient("B301", "slow_math", "multiplies in fp32", CUDA),
    Patient("B302", "misaligned", "has a vocabulary of 50257", CUDA),
    Patient("B303", "wave_quantization", "has eight tiles more than two rounds of multiprocessors take", CUDA),
    Patient("B304", "low_rate", "convolves in groups of four channels", CUDA),
    Patient("B305", "padding_waste", "pads short sequences to the longest that there could be"),
    Patient("B502", "noise", "does more in some seconds than in others"),
    Patient("B504", "distortion", "turns a matrix three thousand times"),
    Patient("B505", "uncounted", "uses an op that has no formula"),
    Patient("B601", "near_limit", "holds nearly all of the memory", CUDA),
    Patient("B602", "larger_batch", "trains on eight samples at a time", batch_test=True),
)

PATIENTS = {patient.code: patient for patient in ALL}

WITHOUT = {
    "B501": "gobrrr itself would have to break",
    "B503": "heat and power limits are the machine's: `nvidia-smi --power-limit` can make one",
}
"""Findings that no model can have, and why."""

EVERYTHING = Patient(
    "", "everything", "is a GPT with everything wrong: fp32, attention and update written out, and more"
)
