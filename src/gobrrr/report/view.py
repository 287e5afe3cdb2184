"""What every format shows of a step: sentences, rows and shares, ready to be laid out. Renderers compute nothing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gobrrr import units
from gobrrr.diagnose.batch import BatchVerdict
from gobrrr.diagnose.diagnosis import MOST_UNCOUNTED, Diagnosis
from gobrrr.diagnose.findings import FINDINGS, Finding, nothing_to_gain
from gobrrr.diagnose.modules import ModuleNode, largest
from gobrrr.diagnose.rows import ClassRow, OpRow, layers_as_one
from gobrrr.report.plain import plain
from gobrrr.work.op import OpClass
from gobrrr.work.registry import canonical

MOST_MODULES = 300
"""Lines of the tree: a model's layers are of a few kinds, and beyond this nobody scrolls."""
MOST_NAMES = 3
MOST_SYNC_LINES = 2
MOST_SHAPES = 4
MOST_EVIDENCE = 800
"""Characters of a line of evidence: what we wrote ourselves around names that we did not."""
ROUNDING = 1e-9
"""Of the step: less is what sums of floats leave over."""
NEAR = 0.7
"""Of the floor: good kernels reach so much of their ceilings, so a step above it has no more to give."""
HALF = 0.5
"""If less of the leading regime is attained, the verdict says so: the units are occupied, not used."""

_SEEN = {
    "windows": ("step", "without a profiler"),
    "replayed": ("recorded step", "without what recording cost"),
}
_TICK_OF_A_STEP = "Each tick is a recorded step; the band is the 95 % interval of the median."
_TICKS = {
    "windows": "Each tick is a window of steps; the band is the 95 % interval of the median.",
    "replayed": "Each tick is a recorded step, played again; the band is what recording may have cost, most to least.",
}
_ENGINE = "autograd::engine::evaluate_function: "
"""Before the name of a backward op, where its trace holds nothing further in."""

_LIMITERS = {
    "host": "the host limits",
    "device": "the device limits",
    "balanced": "host and device are both full",
    "mixed": "neither host nor device is full",
}


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a regime's time: attained or inefficient, idle, latency or transfers."""

    name: str
    seconds: float
    share: float
    """Of the step."""


@dataclass(frozen=True, slots=True)
class Part:
    regime: str
    seconds: float
    share: float
    pieces: tuple[Piece, ...]
    """None where a regime has no parts."""


@dataclass(frozen=True, slots=True)
class ClassLine:
    name: str
    seconds: float
    share: float
    flops: float | None
    flops_share: float | None
    bytes: float | None
    bytes_share: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    slower: float | None
    """How many times fewer FLOP/s than contractions reach."""


@dataclass(frozen=True, slots=True)
class OpLine:
    """The ops of one kind, all layers together."""

    label: str
    """By the ops of the program that it does."""
    kernel: str
    shapes: str
    cls: str
    phase: str
    module: str
    source: str | None
    calls: int
    seconds: float
    share: float
    """Of the step."""
    floor_s: float | None
    of_floor: float | None
    """Floor over time: what fraction of its ceiling it reaches."""
    headroom_s: float | None
    regime: str
    level: str | None
    flops: float | None
    bytes: float | None
    flops_per_s: float | None
    bytes_per_s: float | None
    intensity: float | None
    findings: tuple[str, ...]
    """Codes of those whose evidence names its line."""


@dataclass(frozen=True, slots=True)
class ModuleLine:
    depth: int
    label: str
    path: str
    modules: int
    calls: int
    seconds: float
    share: float
    """Of busy time."""
    of_floor: float | None
    headroom_s: float | None
    regime: str
    regimes: Mapping[str, float]
    """Shares of its own time."""
    has_children: bool


@dataclass(frozen=True, slots=True)
class FindingLine:
    code: str
    title: str
    seconds_at_stake: float | None
    device_seconds: float | None
    share: float | None
    """At stake, of the step."""
    evidence: tuple[str, ...]
    explanation: str
    treatment: str
    fix: str
    unless: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepView:
    target: str
    machine: str
    ceilings_from: str
    verdict: tuple[str, str, str]
    """In one sentence of three clauses: regime, limiter, the fraction of the fused floor."""
    regime: str
    step: str
    """Its time with interval, and how it was taken."""
    step_s: float
    fraction_of_floor: float | None
    floors: Mapping[str, float | None]
    """The step and its floors in seconds, the longest first."""
    parts: tuple[Part, ...]
    idle: Mapping[str, float]
    """What the host did while nothing ran, in seconds, the longest first."""
    waits: str | None
    """The lines where it waited for the device."""
    classes: tuple[ClassLine, ...]
    ops: tuple[OpLine, ...]
    modules: tuple[ModuleLine, ...]
    findings: tuple[FindingLine, ...]
    nothing: str | None
    """The sentence that says that there is nothing to gain, or what no finding explains."""
    batch_test: tuple[str, str] | None
    """What was seen and what it means."""
    measured: tuple[str, ...]
    """How: sentences."""
    ticks: str
    """What a tick and the band mean, where step times are drawn."""
    doubts: tuple[str, ...]


def step_view(diagnosis: Diagnosis) -> StepView:
    test = diagnosis.batch_test
    return StepView(
        target=plain(diagnosis.target),
        machine=plain(diagnosis.machine.name),
        ceilings_from=plain(diagnosis.machine.ceilings_from),
        verdict=verdict(diagnosis),
        regime=diagnosis.regime,
        step=_step(diagnosis),
        step_s=diagnosis.step_s,
        fraction_of_floor=diagnosis.fraction_of_floor,
        floors=_floors(diagnosis),
        parts=tuple(_parts(diagnosis)),
        idle={
            plain(cause.replace("_", " ")): seconds
            for cause, seconds in (diagnosis.idle_causes_s or {}).items()
            if seconds > 0
        },
        waits=_waits(diagnosis),
        classes=tuple(_classes(diagnosis.classes)),
        ops=tuple(_op(row, diagnosis) for row in layers_as_one(diagnosis.ops)),
        modules=tuple(_module(line.depth, line.label, line.node) for line in largest(diagnosis.modules, MOST_MODULES)),
        findings=tuple(_finding(found, diagnosis.step_s) for found in diagnosis.findings),
        nothing=_nothing(diagnosis),
        batch_test=None if test is None else (_batch_test(test), test.explanation),
        measured=tuple(_measured(diagnosis)),
        ticks=_TICKS.get(diagnosis.step_s_method, _TICK_OF_A_STEP),
        doubts=tuple(plain(warning, MOST_EVIDENCE) for warning in (*diagnosis.quality.warnings, *_blind(diagnosis))),
    )


def verdict(diagnosis: Diagnosis) -> tuple[str, str, str]:
    limits = _LIMITERS.get(diagnosis.limiter, "what limits is unknown")
    return _regime(diagnosis), limits, _of_floor(diagnosis)


def _step(diagnosis: Diagnosis) -> str:
    interval = f"{units.seconds(diagnosis.step_s_low)} to {units.seconds(diagnosis.step_s_high)}"
    what, how = _SEEN.get(diagnosis.step_s_method, ("recorded step", "under the profiler"))
    steps = f"{diagnosis.steps} {what}{'' if diagnosis.steps == 1 else 's'} {how}"
    return f"step {units.seconds(diagnosis.step_s)} ({interval}, {steps})"


def _regime(diagnosis: Diagnosis) -> str:
    if diagnosis.shares is None or diagnosis.regime in ("mixed", "unknown"):
        return f"regime {diagnosis.regime}"
    share = f"{diagnosis.regime} {units.percent(diagnosis.shares[diagnosis.regime], 0)}"
    attained = diagnosis.attained_s.get(diagnosis.regime)
    whole = diagnosis.seconds[diagnosis.regime]
    if attained is None or not whole or attained / whole >= HALF:
        return share
    return f"{share}, {units.percent(attained / whole, 0)} of it attained"


def _of_floor(diagnosis: Diagnosis) -> str:
    if diagnosis.fraction_of_floor is None:
        return "its floor is unknown" if diagnosis.as_run_floor_s is None else "its fused floor is unknown"
    fraction = units.percent(diagnosis.fraction_of_floor, 0)
    return f"you are at {fraction} of what this machine can do (fused floor {units.seconds(diagnosis.fused_floor_s)})"


def _floors(diagnosis: Diagnosis) -> dict[str, float | None]:
    return {
        "the step": diagnosis.step_s,
        "as run": diagnosis.as_run_floor_s,
        "fused": diagnosis.fused_floor_s,
        "compulsory": diagnosis.compulsory_floor_s,
    }


def _parts(diagnosis: Diagnosis) -> Iterator[Part]:
    for regime, seconds in diagnosis.seconds.items():
        if seconds > 0:
            pieces = tuple(Piece(name, part, part / diagnosis.step_s) for name, part in _pieces(diagnosis, regime))
            yield Part(regime, seconds, seconds / diagnosis.step_s, pieces)


def _pieces(diagnosis: Diagnosis, regime: str) -> Iterator[tuple[str, float]]:
    """Of overhead, what is neither idle nor latency are transfers that no kernel covers."""
    if regime == "overhead":
        yield "idle", diagnosis.idle_s
        yield "latency", diagnosis.latency_s
        transfers_s = diagnosis.seconds[regime] - diagnosis.idle_s - diagnosis.latency_s
        if transfers_s > ROUNDING * diagnosis.step_s:
            yield "transfers", transfers_s
    elif regime in diagnosis.attained_s:
        yield "attained", diagnosis.attained_s[regime]
        yield "inefficient", diagnosis.inefficient_s[regime]


def _waits(diagnosis: Diagnosis) -> str | None:
    if not (diagnosis.idle_causes_s or {}).get("sync"):
        return None
    waits = sorted(diagnosis.syncs or (), key=lambda sync: -sync.seconds)
    lines = list(dict.fromkeys(f"{sync.source} ({sync.call})" for sync in waits if sync.source is not None))
    return plain(", ".join(lines[:MOST_SYNC_LINES])) + (", …" if len(lines) > MOST_SYNC_LINES else "") or None


def _classes(rows: Mapping[str, ClassRow]) -> Iterator[ClassLine]:
    flops, moved = sum(row.flops or 0.0 for row in rows.values()), sum(row.bytes or 0.0 for row in rows.values())
    contraction = rows.get(OpClass.CONTRACTION)
    best = None if contraction is None else _ratio(contraction.flops, contraction.seconds)
    for name, row in rows.items():
        rate = _ratio(row.flops, row.seconds)
        yield ClassLine(
            name=name,
            seconds=row.seconds,
            share=row.share,
            flops=row.flops,
            flops_share=_ratio(row.flops, flops),
            bytes=row.bytes,
            bytes_share=_ratio(row.bytes, moved),
            flops_per_s=rate,
            bytes_per_s=_ratio(row.bytes, row.seconds),
            slower=_ratio(best, rate),
        )


def _op(row: OpRow, diagnosis: Diagnosis) -> OpLine:
    return OpLine(
        label=plain(_op_name(row)),
        kernel=plain(row.name),
        shapes=_shapes(row),
        cls=row.cls,
        phase=row.phase,
        module=plain(row.module),
        source=None if row.source is None else plain(row.source),
        calls=row.calls,
        seconds=row.seconds,
        share=row.seconds / diagnosis.step_s,
        floor_s=row.floor_s,
        of_floor=_ratio(row.floor_s, row.seconds),
        headroom_s=_headroom_s(row.seconds, row.floor_s),
        regime=row.regime,
        level=row.level,
        flops=row.flops,
        bytes=row.bytes,
        flops_per_s=_ratio(row.flops, row.seconds),
        bytes_per_s=_ratio(row.bytes, row.seconds),
        intensity=_ratio(row.flops, row.bytes),
        findings=tuple(found.code for found in diagnosis.findings if _names(found, row.source)),
    )


def _names(found: Finding, source: str | None) -> bool:
    return source is not None and any(source in line for line in found.evidence)


def _op_name(row: OpRow) -> str:
    """By the ops of the program that it does, the first few of them."""
    names = [canonical(name).removeprefix(_ENGINE) for name in row.fused_from or ()]
    more = [f"{len(names) - MOST_NAMES} more"] if len(names) > MOST_NAMES else []
    return " + ".join([*names[:MOST_NAMES], *more]) or row.name


def _shapes(row: OpRow) -> str:
    """`[8, 512, 1024] bf16, …`: its first operands."""
    if row.shapes is None or row.dtypes is None:
        return ""
    told = [f"{list(shape)} {dtype}" for shape, dtype in zip(row.shapes, row.dtypes, strict=True)]
    return plain(", ".join([*told[:MOST_SHAPES], *(["…"] if len(told) > MOST_SHAPES else [])]))


def _module(depth: int, label: str, node: ModuleNode) -> ModuleLine:
    return ModuleLine(
        depth=depth,
        label=plain(label),
        path=plain(node.path),
        modules=node.modules,
        calls=node.calls,
        seconds=node.seconds,
        share=node.share,
        of_floor=_ratio(node.floor_s, node.seconds),
        headroom_s=_headroom_s(node.seconds, node.floor_s),
        regime=max(node.regimes_s, key=node.regimes_s.__getitem__),
        regimes={name: part / node.seconds for name, part in node.regimes_s.items() if part > 0},
        has_children=bool(node.children),
    )


def _finding(found: Finding, step_s: float) -> FindingLine:
    rule = FINDINGS[found.code]
    return FindingLine(
        code=found.code,
        title=found.title,
        seconds_at_stake=found.seconds_at_stake,
        device_seconds=found.device_seconds,
        share=_ratio(found.seconds_at_stake, step_s),
        evidence=tuple(plain(line, MOST_EVIDENCE) for line in found.evidence),
        explanation=found.explanation,
        treatment=found.treatment,
        fix=rule.fix,
        unless=rule.unless,
    )


def _nothing(diagnosis: Diagnosis) -> str | None:
    sentence = nothing_to_gain(diagnosis.findings, diagnosis.step_s)
    return None if sentence is None else _uncounted(diagnosis) or _unexplained(diagnosis) or sentence


def _uncounted(diagnosis: Diagnosis) -> str | None:
    """Where most of the work is unknown there may be much to gain, and nobody can say."""
    share = diagnosis.seconds["uncounted"] / diagnosis.step_s
    if share <= MOST_UNCOUNTED:
        return None
    return f"what could be gained is not known: {units.percent(share, 0)} of the step is in work without a floor"


def _unexplained(diagnosis: Diagnosis) -> str | None:
    """Far from the floor there is something to gain even if no finding says how: in which part of the rest."""
    if diagnosis.fraction_of_floor is None or diagnosis.fraction_of_floor >= NEAR:
        return None
    rest_s = {
        "inefficient kernels": sum(diagnosis.inefficient_s.values()),
        "latency": diagnosis.latency_s,
        "idle": diagnosis.idle_s,
        "communication": diagnosis.seconds["communication"],
        "uncounted kernels": diagnosis.seconds["uncounted"],
    }
    most = max(rest_s, key=rest_s.__getitem__)
    return (
        f"no known problem explains why the step is at {units.percent(diagnosis.fraction_of_floor, 0)} of its floor; "
        f"the largest part of the rest is {most}, {units.seconds(rest_s[most])}"
    )


def _batch_test(test: BatchVerdict) -> str:
    interval = f"{units.times(test.ratio_low)} to {units.times(test.ratio_high)}"
    moved = "" if test.bytes_ratio is None else f", and moves {units.times(test.bytes_ratio)} the bytes"
    return f"twice the batch takes {units.times(test.ratio)} the time ({interval}){moved}"


def _measured(diagnosis: Diagnosis) -> Iterator[str]:
    yield (
        f"counted by formula {units.percent(diagnosis.coverage['formula'], 0)} of busy time; floors: compulsory "
        f"{units.seconds(diagnosis.compulsory_floor_s)}, fused {units.seconds(diagnosis.fused_floor_s)}, as run "
        f"{units.seconds(diagnosis.as_run_floor_s)}; under the profiler the step took "
        f"{units.seconds(diagnosis.step_profiled_s)}"
    )
    if recorded := _recorded(diagnosis):
        yield f"of busy time, {recorded}; ceilings: {plain(diagnosis.machine.ceilings_from)}"
    if used := _gpu_use(diagnosis):
        yield f"while the step was timed the GPU had {used}"


def _blind(diagnosis: Diagnosis) -> Iterator[str]:
    """Without ceilings nothing is near or far from anything."""
    if diagnosis.machine.ceilings_from == "unknown":
        yield "without known ceilings there are no floors: --ceilings takes what `gobrrr machine --json` says there"


def _gpu_use(diagnosis: Diagnosis) -> str:
    percent, clock_hz, power_w = diagnosis.gpu_util_percent, diagnosis.gpu_clock_hz, diagnosis.gpu_power_w
    told = (
        None if percent is None else f"{percent:.0f} % utilization",
        None if clock_hz is None else f"{clock_hz / 1e6:.0f} MHz",
        None if power_w is None else f"{power_w:.0f} W",
        None
        if diagnosis.gpu_memory_bytes is None
        else f"{units.capacity(diagnosis.gpu_memory_bytes)} of memory in use",
    )
    return ", ".join(text for text in told if text is not None)


def _recorded(diagnosis: Diagnosis) -> str:
    """How much of a trace could be used; nothing of a live run, where all is."""
    quality = diagnosis.quality
    if quality.steps_found_by is None:
        return ""
    shares = {
        "linked to ops": quality.linked_share,
        "with shapes": quality.shapes_share,
        "in graphs": quality.graph_share,
    }
    return ", ".join(f"{units.percent(share, 0)} {what}" for what, share in shares.items())


def _headroom_s(seconds: float, floor_s: float | None) -> float | None:
    return None if floor_s is None else max(0.0, seconds - floor_s)


def _ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole
