"""What-ifs as typed: `batch=2x,dtype=bf16,compile`. Each becomes one field of a Change."""

import re
from dataclasses import dataclass, replace
from math import inf

from gobrrr.errors import UsageError
from gobrrr.machine.datasheets import Datasheet
from gobrrr.predict.inputs import Scale
from gobrrr.predict.step import Variant

DTYPES = ("bf16", "fp16", "tf32", "fp8")
ALLOWED = "batch=2x, sequence=2x, dtype=bf16|fp16|tf32|fp8, compile, graph, flash, checkpoint, power=300"


@dataclass(frozen=True, slots=True)
class Change:
    text: str
    batch: float = 1.0
    """Times as many."""
    sequence: float = 1.0
    """Times as long."""
    dtype: str | None = None
    compiled: bool = False
    graphed: bool = False
    flash: bool = False
    """Attention of two products and a softmax as one kernel."""
    checkpoint: bool = False
    """Each layer's activations computed again instead of kept."""
    power_w: float | None = None

    @property
    def scale(self) -> Scale:
        return Scale(self.batch, self.sequence, self.compiled)

    @property
    def variant(self) -> Variant:
        return Variant.of(compiled=self.compiled, graphed=self.graphed)

    def on_top_of(self, variant: Variant) -> "Change":
        """What is compiled or graphed already stays so."""
        compiled, graphed = self.compiled or variant.is_compiled, self.graphed or variant.is_graphed
        return replace(self, compiled=compiled, graphed=graphed)


AS_IT_IS = Change("")


def parse(text: str) -> list[Change]:
    """Each alone, and all together where there are several."""
    alone = [_one(part.strip(), AS_IT_IS) for part in text.split(",") if part.strip()]
    if not alone:
        raise UsageError(f"{text!r} changes nothing; allowed are {ALLOWED}")
    if len(alone) == 1:
        return alone
    keys = [change.text.partition("=")[0] for change in alone]
    if twice := next((key for key in keys if keys.count(key) > 1), None):
        raise UsageError(f"{text!r} changes {twice} twice: ask for one after the other")
    together = AS_IT_IS
    for part in text.split(","):
        together = _one(part.strip(), together)
    return [*alone, replace(together, text=" + ".join(change.text for change in alone))]


def _one(part: str, change: Change) -> Change:
    change = replace(change, text=part)
    key, _, value = part.partition("=")
    match key:
        case "batch":
            return replace(change, batch=_factor(part, value))
        case "sequence":
            return replace(change, sequence=_factor(part, value))
        case "dtype" if value in DTYPES:
            return replace(change, dtype=value)
        case "compile" if not value:
            return replace(change, compiled=True)
        case "graph" if not value:
            return replace(change, graphed=True)
        case "flash" if not value:
            return replace(change, flash=True)
        case "checkpoint" if not value:
            return replace(change, checkpoint=True)
        case "power":
            return replace(change, power_w=_positive(value.removesuffix("W"), part))
    raise UsageError(f"{part!r} is no change that can be predicted; allowed are {ALLOWED}")


def _factor(part: str, value: str) -> float:
    if not re.fullmatch(r"\d+(\.\d+)?x", value):
        raise UsageError(f"{part!r} is not of the form batch=2x or sequence=0.5x")
    return _positive(value.removesuffix("x"), part)


def _positive(value: str, part: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = 0.0
    if not 0 < number < inf:
        raise UsageError(f"{part!r} is not above zero")
    return number


def check(change: Change, sheet: Datasheet) -> None:
    """What the accelerator cannot do is said, not predicted."""
    if change.dtype is not None and change.dtype not in sheet.matmul_flops_per_s:
        modes = ", ".join(mode for mode in DTYPES if mode in sheet.matmul_flops_per_s) or "none of those"
        raise UsageError(f"{sheet.id} has no {change.dtype} matrix units; of {', '.join(DTYPES)} it has {modes}")
