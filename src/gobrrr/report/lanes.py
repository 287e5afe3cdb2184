"""One recorded step as lanes: what the host asked for, what the device ran, and what each gap waited for."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from gobrrr import units
from gobrrr.diagnose.regime import Regime
from gobrrr.diagnose.rows import kind_of, kind_of_kernel, layers_as_one
from gobrrr.exam import Exam
from gobrrr.report.examined import Examined
from gobrrr.report.plain import plain
from gobrrr.timing.kernel import Kernel, KernelKind
from gobrrr.work.op import Op, Phase

LEAST = 1e-4
"""Of the step: a shorter gap has no name."""

MOST_GAPS = 4000
HOST, DEVICE = "host", "device"


@dataclass(frozen=True, slots=True)
class Bar:
    lane: str
    start_s: float
    """Since the device began, or was free for this step: the host may be ahead of it."""
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


def lanes_view(examined: Examined) -> LanesView:
    exam, rows = examined.exam, layers_as_one(examined.diagnosis.ops)
    ran = sorted(exam.kernels, key=lambda kernel: kernel.start_s)
    if not ran:
        return LanesView((), (), 0.0, exam.step_s, "no kernel was recorded")
    names = _lanes(ran, "thread" if exam.device == "cpu" else "stream")
    places = {kind_of(row): place for place, row in enumerate(rows)}
    bars = [
        Bar(names[one.stream, one.kind], one.start_s, one.seconds, rows[place].regime, "kernel", "", place)
        for one, place in ((kernel, places[kind_of_kernel(kernel, exam)]) for kernel in ran)
    ]
    gaps = sorted(_gaps(ran, next(iter(names.values())), exam), key=lambda bar: -bar.seconds)[:MOST_GAPS]
    start_s = ran[0].start_s - (exam.gap_before_s or 0.0)
    end_s = max(one.start_s + one.seconds for one in ran)
    host = list(_host(ran, exam))
    lanes = (*([HOST] if host else []), *dict.fromkeys(names.values()))
    shown = tuple(replace(bar, start_s=bar.start_s - start_s) for bar in (*host, *gaps, *bars))
    return LanesView(lanes, shown, 0.0, end_s - start_s, _note(ran, start_s))


def _lanes(ran: Sequence[Kernel], what: str) -> dict[tuple[int, KernelKind], str]:
    """A lane for each stream or thread, and for copies and collectives on it."""
    keys = sorted({(one.stream, one.kind) for one in ran}, key=lambda key: (key[1] != "compute", key))
    if len(keys) == 1:
        return {keys[0]: DEVICE}
    return {key: f"{what} {key[0]}" + ("" if key[1] is KernelKind.COMPUTE else f" {key[1].value}") for key in keys}


def _gaps(ran: Sequence[Kernel], lane: str, exam: Exam) -> Iterator[Bar]:
    """Stretches in which no stream ran anything, each with what the next kernel waited for."""
    end_s = ran[0].start_s - (exam.gap_before_s or 0.0)
    for one in ran:
        if one.start_s - end_s > LEAST * exam.step_s:
            why = _why(one, end_s, exam)
            yield Bar(lane, end_s, one.start_s - end_s, Regime.OVERHEAD.value, "gap", why, None)
        end_s = max(end_s, one.start_s + one.seconds)


def _why(one: Kernel, idle_since_s: float, exam: Exam) -> str:
    op = _op(one, exam)
    name = one.name if op is None else op.name
    where = "" if op is None or op.source is None else f" at {op.source}"
    if exam.serial:
        return plain(f"Python and dispatch before {name}{where}")
    if one.launched_s is None:
        return plain(f"idle before {name}{where}")
    if one.launched_s <= idle_since_s:
        return plain(f"{name} was launched already: latency of the launch")
    return plain(f"waits for the host to ask for {name}{where}")


def _op(one: Kernel, exam: Exam) -> Op | None:
    index = exam.index(one)
    return None if index is None else exam.ran[index]


def _host(ran: Sequence[Kernel], exam: Exam) -> Iterator[Bar]:
    """From the first launch of a phase to its last."""
    launches = sorted(
        (one.launched_s, Phase.OTHER.value if op is None else op.phase.value)
        for one, op in ((kernel, _op(kernel, exam)) for kernel in ran)
        if one.launched_s is not None
    )
    for phase, group in groupby(launches, key=lambda launch: launch[1]):
        moments = [moment for moment, _ in group]
        if moments[-1] > moments[0]:
            yield Bar(HOST, moments[0], moments[-1] - moments[0], Regime.UNCOUNTED.value, "host", phase, None)


def _note(ran: Sequence[Kernel], start_s: float) -> str | None:
    """The host may be far ahead: then its lane is empty where the device's begins."""
    asked_s = max((one.launched_s for one in ran if one.launched_s is not None), default=start_s)
    if asked_s >= start_s:
        return None
    return f"the host had asked for all of it {units.seconds(start_s - asked_s)} before the device began"
