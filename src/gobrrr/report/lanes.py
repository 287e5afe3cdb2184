"""One recorded step as lanes: what the host asked for, what the device ran, and what each gap waited for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from gobrrr import units
from gobrrr.diagnose.attribute import Attributed, attribute
from gobrrr.diagnose.regime import Regime
from gobrrr.diagnose.rows import kind_of, layers_as_one, op_rows, row_of
from gobrrr.exam import Exam
from gobrrr.report.plain import plain
from gobrrr.timing.kernel import KernelKind

LEAST = 1e-4
"""Of the step: a shorter gap has no name."""

MOST_GAPS = 4000
HOST, DEVICE = "host", "device"


@dataclass(frozen=True, slots=True)
class Bar:
    lane: str
    start_s: float
    seconds: float
    regime: str
    kind: str
    """`kernel`, `gap`, `host`."""
    what: str
    """Of a gap, what it waited for; of the host, the phase. A kernel is named by its op."""
    op: int | None
    """Which line of the ops it belongs to."""


@dataclass(frozen=True, slots=True)
class LanesView:
    lanes: tuple[str, ...]
    bars: tuple[Bar, ...]
    start_s: float
    end_s: float
    note: str | None


def lanes_view(exam: Exam) -> LanesView:
    kernels, _ = attribute(exam)
    ran = sorted(kernels, key=lambda one: one.kernel.start_s)
    if not ran:
        return LanesView((), (), 0.0, exam.step_s, "no kernel was recorded")
    places = {kind_of(row): place for place, row in enumerate(layers_as_one(op_rows(kernels, exam)))}
    names = _lanes(ran)
    bars = [_kernel(one, names, places, exam) for one in ran]
    gaps = sorted(_gaps(ran, next(iter(names.values())), exam), key=lambda bar: -bar.seconds)[:MOST_GAPS]
    start_s = ran[0].kernel.start_s - (exam.gap_before_s or 0.0)
    end_s = max(one.kernel.start_s + one.kernel.seconds for one in ran)
    host = list(_host(ran))
    lanes = (*([HOST] if host else []), *dict.fromkeys(names.values()))
    return LanesView(lanes, (*host, *gaps, *bars), start_s, end_s, _note(host, start_s))


def _lanes(ran: Sequence[Attributed]) -> dict[tuple[int, KernelKind], str]:
    """A lane for each stream, and for copies and collectives on it."""
    keys = sorted({(one.kernel.stream, one.kernel.kind) for one in ran}, key=lambda key: (key[1] != "compute", key))
    if len(keys) == 1:
        return {keys[0]: DEVICE}
    return {key: f"stream {key[0]}" + ("" if key[1] is KernelKind.COMPUTE else f" {key[1].value}") for key in keys}


def _kernel(
    one: Attributed,
    names: Mapping[tuple[int, KernelKind], str],
    places: Mapping[tuple[object, ...], int],
    exam: Exam,
) -> Bar:
    lane = names[one.kernel.stream, one.kernel.kind]
    place = places.get(kind_of(row_of(one, exam)))
    return Bar(lane, one.kernel.start_s, one.kernel.seconds, one.regime.value, "kernel", "", place)


def _gaps(ran: Sequence[Attributed], lane: str, exam: Exam) -> Iterator[Bar]:
    """Stretches in which no stream ran anything, each with what the next kernel waited for."""
    end_s = ran[0].kernel.start_s - (exam.gap_before_s or 0.0)
    for one in ran:
        start_s = one.kernel.start_s
        if start_s - end_s > LEAST * exam.step_s:
            why = _why(one, end_s, exam)
            yield Bar(lane, end_s, start_s - end_s, Regime.OVERHEAD.value, "gap", why, None)
        end_s = max(end_s, start_s + one.kernel.seconds)


def _why(one: Attributed, idle_since_s: float, exam: Exam) -> str:
    op = one.kernel.name if one.op is None else one.op.name
    where = "" if one.op is None or one.op.source is None else f" at {one.op.source}"
    if exam.serial:
        return plain(f"Python and dispatch before {op}{where}")
    if one.kernel.launched_s is None:
        return plain(f"idle before {op}{where}")
    if one.kernel.launched_s <= idle_since_s:
        return plain(f"{op} was launched already: latency of the launch")
    return plain(f"waits for the host to ask for {op}{where}")


def _host(ran: Sequence[Attributed]) -> Iterator[Bar]:
    """From the first launch of a phase to its last."""
    launches = sorted(
        (one.kernel.launched_s, "other" if one.op is None else one.op.phase.value)
        for one in ran
        if one.kernel.launched_s is not None
    )
    for phase, group in groupby(launches, key=lambda launch: launch[1]):
        moments = [moment for moment, _ in group]
        if moments[-1] > moments[0]:
            yield Bar(HOST, moments[0], moments[-1] - moments[0], Regime.UNCOUNTED.value, "host", phase, None)


def _note(host: Sequence[Bar], start_s: float) -> str | None:
    """The host may be far ahead: then its lane is empty where the device's begins."""
    ahead_s = start_s - max((bar.start_s + bar.seconds for bar in host), default=start_s)
    if ahead_s <= 0:
        return None
    return f"the host had asked for all of it {units.seconds(ahead_s)} before the device began: zoom out to see it"
