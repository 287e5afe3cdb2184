"""What the machine was measured to do, as one plain document: no torch here, so that it is read anywhere.

A value that nobody measured is None, or its name is absent from the mapping; 0 would mean "measured as
nothing". Dotted keys such as `matmul_flops_per_s.bf16` name single values in `spread`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import datetime
from typing import Any, ClassVar, Self

from gobrrr.dtypes import MATRIX_MODES
from gobrrr.errors import Missing
from gobrrr.machine.doubts import Doubt
from gobrrr.stats import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """The most that each part of one machine was seen to do, with the doubt that belongs to each value."""

    SCHEMA: ClassVar[str] = "machine"
    VERSION: ClassVar[int] = 1
    DERIVED: ClassVar[tuple[str, ...]] = ("ridge_flops_per_byte",)

    device: str
    """As the driver spells it."""
    kind: str
    threads: int
    """Of the host; a CPU's ceilings hold for this number only."""
    measured_at: str
    """ISO 8601, UTC. Of several measurements the oldest: no value is older than this says."""

    matmul_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    vector_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    transcendental_cost: Mapping[str, float] = field(default_factory=dict)
    """In slots of one fused multiply-add (2 FLOPs) at the fp32 vector rate."""
    dram_bytes_per_s: float | None = None
    """The best of the patterns."""
    dram_pattern_bytes_per_s: Mapping[str, float] = field(default_factory=dict)
    cache_bytes_per_s: float | None = None
    cache_bytes: int | None = None
    shortest_kernel_s: float | None = None
    shortest_kernel_class_s: Mapping[str, float] = field(default_factory=dict)
    dispatch_s: float | None = None
    dispatch_autograd_s: float | None = None
    graph_replay_s: float | None = None
    h2d_bytes_per_s: float | None = None
    d2h_bytes_per_s: float | None = None

    spread: Mapping[str, float] = field(default_factory=dict)
    """Interquartile range over median, by dotted key."""
    samples: Mapping[str, int] = field(default_factory=dict)
    """How many windows stand behind the value, by dotted key."""
    probed: Mapping[str, str] = field(default_factory=dict)
    """Probe to the time it ran, also where it had nothing to give."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Probe to the reason why it gave nothing."""
    doubts: tuple[Doubt, ...] = ()
    """What was wrong with the machine while it was measured."""

    fingerprint: str = ""
    architecture: str | None = None
    driver: str | None = None
    torch: str | None = None
    host: str | None = None
    memory_bytes: int | None = None
    multiprocessors: int | None = None

    @property
    def ridge_flops_per_byte(self) -> dict[str, float]:
        """The intensity at which P FLOP/s and W bytes/s take equally long: F/P = B/W where F/B = P/W."""
        if not self.dram_bytes_per_s:
            return {}
        return {mode: rate / self.dram_bytes_per_s for mode, rate in self.matmul_flops_per_s.items()}

    def value(self, key: str) -> float | None:
        """One value by its dotted key."""
        name, _, item = key.partition(".")
        held = getattr(self, name)
        result: float | None = held.get(item) if item else held
        return result

    def age_s(self, now: datetime) -> float:
        return max(0.0, (now - datetime.fromisoformat(self.measured_at)).total_seconds())

    def filled(self, samples: Mapping[str, Sample]) -> Self:
        """The same machine with these values measured."""
        changes: dict[str, Any] = {}
        for key, sample in samples.items():
            name, _, item = key.partition(".")
            if item:
                changes.setdefault(name, dict(getattr(self, name)))[item] = sample.median
            else:
                changes[name] = sample.median
        spread = {key: sample.spread for key, sample in samples.items()}
        counts = {key: len(sample.values) for key, sample in samples.items()}
        return replace(self, **changes, spread={**self.spread, **spread}, samples={**self.samples, **counts})


DOCUMENTED = {
    "matmul_flops_per_s": MATRIX_MODES,
    "ridge_flops_per_byte": MATRIX_MODES,
    "vector_flops_per_s": ("fp64", "fp32"),
    "transcendental_cost": tuple("exp log sin cos tan tanh erf sqrt rsqrt div pow random".split()),
    "shortest_kernel_class_s": ("elementwise", "reduction", "gemm", "attention"),
    "dram_pattern_bytes_per_s": ("read", "copy", "add"),
}
"""The names that readers of the JSON may ask for in each mapping."""


def complete(data: Mapping[str, Any]) -> dict[str, Any]:
    """The document's data with every documented name there: null is unknown, never absent."""
    filled = {key: {**dict.fromkeys(names), **data[key]} for key, names in DOCUMENTED.items()}
    return {**data, **filled}


def merge(older: Ceilings, newer: Ceilings) -> Ceilings:
    """Both measurements of one machine in one document; where both have a value, the newer.

    The date is the older one, and the doubts of both stay: each still concerns values that are in use.
    """
    assert older.fingerprint == newer.fingerprint, "only measurements of one machine can be merged"
    merged = {item.name: _newer_first(getattr(older, item.name), getattr(newer, item.name)) for item in fields(newer)}
    merged["measured_at"] = min(older.measured_at, newer.measured_at)
    merged["transcendental_cost"] = {**_rescaled_costs(older, newer), **newer.transcendental_cost}
    merged["doubts"] = tuple(dict.fromkeys((*older.doubts, *newer.doubts)))
    merged["unmeasured"] = {
        name: reason
        for name, reason in merged["unmeasured"].items()
        if name in newer.unmeasured or name not in newer.probed
    }
    return Ceilings(**merged)


def for_threads(ceilings: Ceilings, threads: int) -> Ceilings:
    """The ceilings if they hold for a run with so many threads.

    On a CPU all of them scale with the number of threads in ways of their own (matrix rates linearly,
    bandwidth hardly), so there is no honest conversion. A GPU does not care.
    """
    if ceilings.kind == "cpu" and ceilings.threads != threads:
        raise Missing(
            f"these ceilings were measured with {ceilings.threads} threads and the run has {threads}: "
            f"OMP_NUM_THREADS={threads} gobrrr machine measures them"
        )
    return ceilings


def _rescaled_costs(older: Ceilings, newer: Ceilings) -> dict[str, float]:
    """The older costs in slots of the newer vector rate.

    A cost is t·V/2 for a function of t seconds. A new V changes the slot and leaves t as it was measured.
    """
    before, now = (ceilings.vector_flops_per_s.get("fp32") for ceilings in (older, newer))
    scale = now / before if now and before else 1.0
    return {name: cost * scale for name, cost in older.transcendental_cost.items()}


def _newer_first(older: Any, newer: Any) -> Any:
    if isinstance(newer, Mapping):
        return {**older, **newer}
    return older if newer is None else newer
