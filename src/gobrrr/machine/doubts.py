"""Reasons to distrust a measurement, each with what to do about it.

Whether a state of the machine is doubtful is decided by pure functions of plain snapshots; `gpu_state` and
`cpu_state`, in the modules beside this one, take them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gobrrr import units
from gobrrr.stats import NOISY_SPREAD

EXCESS = 1.05
"""Clocks differ from the sheet's by a few percent; a rate beyond that is a wrong sheet or a wrong probe."""

HOT_C = 3
"""Degrees below the slowdown threshold at which the driver already steps the clock back and forth."""

LOW_CLOCK = 0.75
"""Of the highest clock. Turbo steps and load leave an unlimited GPU above it."""

CROWDED_CORES = 0.2
"""Work of others beyond the free cores: a tenth of a core each moves the median of a 2-thread probe by 5 %."""

HARMFUL_THROTTLES: Mapping[int, str] = {
    0x02: "application clocks are set below the maximum",
    0x08: "the hardware slows down (power, heat or an external signal)",
    0x20: "the driver slows down because of heat",
    0x40: "the hardware slows down because of heat",
    0x80: "the power supply asks for less (power brake)",
}
"""Bits of NVML's clock event reasons. The software power cap (0x04) is none of them: large products of random numbers
run every big GPU into it for a moment, and the probes rest between their windows so that it does not last."""

POWER_CAP = 0x04
IDLE = 0x01


@dataclass(frozen=True, slots=True)
class Doubt:
    what: str
    remedy: str


@dataclass(frozen=True, slots=True)
class GpuState:
    """A GPU at one moment, as far as its driver tells; None is unknown."""

    throttle_bits: int | None = None
    power_limit_w: float | None = None
    power_default_w: float | None = None
    temperature_c: float | None = None
    slowdown_c: float | None = None
    clock_hz: float | None = None
    highest_clock_hz: float | None = None
    processes: int | None = None
    """That hold a context on it, ours among them."""


@dataclass(frozen=True, slots=True)
class CpuState:
    """The cores we may run on at one moment; times are totals since boot, None is unknown."""

    cores: int
    threads: int
    quota_cores: float | None = None
    """What the control group lets us use."""
    at_s: float = 0.0
    busy_s: float | None = None
    stolen_s: float | None = None
    """Taken by other guests of the hypervisor."""
    own_s: float = 0.0


def gpu_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    """Of a GPU, from its states before, between and after the probes."""
    return [
        *_throttle_doubts(states),
        *_power_doubts(states),
        *_heat_doubts(states),
        *_clock_doubts(states),
        *_process_doubts(states),
    ]


def _throttle_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    seen = 0
    for state in states:
        seen |= state.throttle_bits or 0
    return [
        Doubt(f"while it was measured, {text}", "see nvidia-smi -q -d PERFORMANCE, then measure with --fresh")
        for bit, text in HARMFUL_THROTTLES.items()
        if seen & bit
    ]


def _power_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    for state in states:
        limit, default = state.power_limit_w, state.power_default_w
        if limit is not None and default is not None and limit < default - 1:
            return [
                Doubt(
                    f"the power limit is {limit:.0f} W, below the default of {default:.0f} W",
                    f"nvidia-smi -pl {default:.0f} as root restores it",
                )
            ]
    return []


def _heat_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    for state in states:
        hot, limit = state.temperature_c, state.slowdown_c
        if hot is not None and limit is not None and hot >= limit - HOT_C:
            return [Doubt(f"it is at {hot:.0f} °C and slows down at {limit:.0f}", "let it cool, or cool it better")]
    return []


def _clock_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    """A clock that fell under load although nothing explains it.

    The reason may be gone by the time one looks while the clock is still rising, so a power cap at any moment
    explains a low clock at every other.
    """
    if any((state.throttle_bits or 0) & POWER_CAP for state in states):
        return []
    for state in states:
        clock, highest, bits = state.clock_hz, state.highest_clock_hz, state.throttle_bits
        if clock is None or highest is None or bits is None or bits & IDLE:
            continue
        if clock < LOW_CLOCK * highest:
            return [
                Doubt(
                    f"its clock fell to {clock / 1e6:.0f} MHz of {highest / 1e6:.0f} under load",
                    "nvidia-smi -q -d CLOCK,PERFORMANCE says what holds it",
                )
            ]
    return []


def _process_doubts(states: Sequence[GpuState]) -> list[Doubt]:
    """Process ids differ across containers, so ours is not looked for but counted: one of them is us."""
    others = max((state.processes for state in states if state.processes is not None), default=1) - 1
    if others < 1:
        return []
    what = "another process holds" if others == 1 else f"{others} other processes hold"
    return [Doubt(f"{what} a context on this GPU", "nvidia-smi lists them; measure with --fresh when they are gone")]


def cpu_doubts(before: CpuState, after: CpuState) -> list[Doubt]:
    """Of a CPU that was measured, from its states before and after the probes."""
    return [*host_doubts(before, after), *_thread_doubts(after)]


def host_doubts(before: CpuState, after: CpuState) -> list[Doubt]:
    """Of whoever drives the device: only that others took its cores."""
    return [*_crowd_doubts(before, after), *_steal_doubts(before, after)]


def _crowd_doubts(before: CpuState, after: CpuState) -> list[Doubt]:
    """Others hurt only where their work and our threads do not fit on the cores side by side."""
    elapsed_s = after.at_s - before.at_s
    if before.busy_s is None or after.busy_s is None or elapsed_s <= 0:
        return []
    others = (after.busy_s - before.busy_s - (after.own_s - before.own_s)) / elapsed_s
    if others + after.threads <= after.cores + CROWDED_CORES:
        return []
    return [
        Doubt(
            f"other programs kept {others:.1f} of {after.cores} cores busy meanwhile",
            "measure with --fresh when the machine is quiet",
        )
    ]


def _steal_doubts(before: CpuState, after: CpuState) -> list[Doubt]:
    elapsed_s = after.at_s - before.at_s
    if before.stolen_s is None or after.stolen_s is None or elapsed_s <= 0:
        return []
    stolen = (after.stolen_s - before.stolen_s) / elapsed_s
    if stolen <= CROWDED_CORES / 2:
        return []
    return [
        Doubt(
            f"the hypervisor gave {stolen:.1f} of our cores to other guests meanwhile",
            "nothing from inside; a dedicated machine measures better",
        )
    ]


def _thread_doubts(state: CpuState) -> list[Doubt]:
    if state.quota_cores is not None and state.quota_cores < state.threads - 0.01:
        return [
            Doubt(
                f"{state.threads} threads share a quota of {state.quota_cores:.1f} cores",
                f"OMP_NUM_THREADS={max(1, int(state.quota_cores))} fits the quota",
            )
        ]
    usable = state.cores if state.quota_cores is None else min(state.cores, int(state.quota_cores))
    if state.threads < usable:
        return [
            Doubt(
                f"torch uses {state.threads} of {usable} cores, and the ceilings hold for that only",
                f"OMP_NUM_THREADS={usable} uses all",
            )
        ]
    return []


def title(key: str) -> str:
    """A dotted key in words: `matmul_flops_per_s.bf16` is the bf16 matmul rate."""
    field, _, item = key.partition(".")
    words = _TITLES.get(field, field.replace("_bytes_per_s", " bandwidth").removesuffix("_s").replace("_", " "))
    return words.format(item) if item else words


_TITLES = {
    "matmul_flops_per_s": "the {} matmul rate",
    "vector_flops_per_s": "the {} vector rate",
    "transcendental_cost": "the cost of {}",
    "dram_bytes_per_s": "memory bandwidth",
    "dram_pattern_bytes_per_s": "memory bandwidth ({})",
    "shortest_kernel_class_s": "the shortest {} kernel",
}


def noise_doubts(spread: Mapping[str, float]) -> list[Doubt]:
    """One doubt for all values whose windows differ more than a difference that one would care for."""
    noisy = sorted(((value, key) for key, value in spread.items() if value > NOISY_SPREAD), reverse=True)
    if not noisy:
        return []
    worst, key = noisy[0]
    which = f"{len(noisy)} values are noisy, most of all" if len(noisy) > 1 else "one value is noisy:"
    return [
        Doubt(
            f"{which} {title(key)} by ± {units.percent(worst / 2, 0)}",
            "measure with --fresh when the machine is quiet",
        )
    ]


def excess_doubts(measured: Mapping[str, float], sheet: Mapping[str, float]) -> list[Doubt]:
    """Values above what the vendor says is possible. They stay as they are: a clamp would hide the error."""
    return [
        Doubt(
            f"{title(key)} measured {units.percent(value / sheet[key] - 1, 0)} above its datasheet",
            "either the sheet is for another part or the probe is wrong: please report it",
        )
        for key, value in measured.items()
        if key in sheet and value > EXCESS * sheet[key]
    ]
