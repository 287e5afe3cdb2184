"""What the numbers of a document can be. A file from a stranger may hold anything, and this is the one place that
refuses; of an Exam here, of what is smaller beside what it is.

The bounds are far beyond what any machine does, and near enough that no sum or quotient of what lies within overflows.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from itertools import chain
from math import inf, prod
from typing import TYPE_CHECKING, NamedTuple

from gobrrr.errors import BadInput

if TYPE_CHECKING:
    from gobrrr.exam import Exam
    from gobrrr.machine.ceilings import Ceilings
    from gobrrr.work.op import Op

LEAST_S = 1e-15
"""Light passes a third of a micrometre in it, and no step does."""

MOST_S = 1e9
"""Thirty years."""

MOST = 1e30
"""FLOPs, bytes, or those per second: the largest training so far took less than 1e27 in all its steps."""

LEAST_RATIO, MOST_RATIO = 1e-9, 1e9
"""Of two times of one step."""

MOST_ELEMENTS = 1 << 63
"""Torch counts elements, strides and offsets in 64 bits."""

MOST_LEVELS = 100
"""Of modules within modules: models have a dozen."""

ROUNDING = 1e-6
"""What sums of shares may miss."""


class Bound(NamedTuple):
    what: str
    low: float
    high: float
    values: Iterable[float | None]


def refuse_impossible(exam: "Exam") -> None:
    """Raises a BadInput that names the first thing that cannot be; what is unknown can.

    One after the other: there is no step time, for one, unless there are windows.
    """
    refuse_beyond("Exam", chain(_times(exam), _shares(exam), _ceilings(exam.ceilings), _counts(exam)))


def refuse_beyond(document: str, bounds: Iterable[Bound]) -> None:
    for what, low, high, values in bounds:
        if any(value is not None and not low <= value <= high for value in values):
            raise BadInput(f"the {document} is damaged: {what} is not from {low:g} to {high:g}")


def _times(exam: "Exam") -> Iterator[Bound]:
    test = exam.batch_test
    yield Bound("the number of windows", 1, inf, [len(exam.window_step_s)])
    yield Bound("a window's step time", 0, MOST_S, exam.window_step_s)
    yield Bound("the step time", LEAST_S, MOST_S, [exam.step_s])
    yield Bound("a step time of the batch test", LEAST_S, MOST_S, chain(*(() if test is None else test.pairs_s)))
    yield Bound("the step time's interval", 0, MOST_S, exam.step_interval_s or ())
    yield Bound("the host's time", -MOST_S, MOST_S, [exam.host_s])  # below 0 where threads wait side by side
    yield Bound("the profiled step's time", 0, MOST_S, [exam.step_profiled_s])
    yield Bound("the time of a kernel", 0, MOST_S, (one.seconds for one in exam.kernels))
    yield Bound("the start of a kernel", -MOST_S, MOST_S, (one.start_s for one in exam.kernels))
    yield Bound("the launch of a kernel", -MOST_S, MOST_S, (one.launched_s for one in exam.kernels))
    yield Bound("the gap before the first kernel", -MOST_S, MOST_S, [exam.gap_before_s])
    yield Bound("the time of a wait", 0, MOST_S, (one.seconds for one in exam.syncs or ()))


def _shares(exam: "Exam") -> Iterator[Bound]:
    idle, quality = exam.idle or {}, exam.quality
    yield Bound("a share of the idle time", -ROUNDING, 1 + ROUNDING, [*idle.values(), sum(idle.values())])
    yield Bound("the share of padding", 0, 1, [exam.padding])
    shares = [quality.linked_share, quality.shapes_share, quality.graph_share]
    yield Bound("a share of the busy time", -ROUNDING, 1 + ROUNDING, shares)


def _ceilings(ceilings: "Ceilings") -> Iterator[Bound]:
    """By the unit that a field's name ends in."""
    for one in fields(ceilings):
        value = getattr(ceilings, one.name)
        values = value.values() if isinstance(value, Mapping) else [value]
        numbers = [number for number in values if isinstance(number, int | float)]
        low, high = (1.0, MOST) if one.name.endswith("_per_s") else (0.0, MOST_S if one.name.endswith("_s") else MOST)
        yield Bound(f"the ceilings' {one.name}", low, high, numbers)


def _counts(exam: "Exam") -> Iterator[Bound]:
    ops = (*exam.dispatched, *(() if exam.program is None else exam.program.ops))
    test = exam.batch_test
    work = chain.from_iterable(_work(op) for op in ops)
    yield Bound("a number of steps", 1, MOST, [exam.steps, exam.step_period])
    yield Bound("the GPU's state", 0, MOST, [exam.gpu_util_percent, exam.gpu_clock_hz, exam.gpu_power_w])
    yield Bound("a size in memory", 0, MOST, [exam.peak_memory_bytes, exam.gpu_memory_bytes, *_memory(exam)])
    yield Bound("a number of allocation retries", 0, MOST, [exam.allocation_retries])
    yield Bound("the bytes of twice the batch", 0, MOST, [test.doubled_bytes if test else None])
    yield Bound("a number of graph breaks", 0, MOST, exam.compilation.breaks.values() if exam.compilation else ())
    yield Bound("the work of an op", 0, MOST, work)
    yield Bound("the levels of a module", 0, MOST_LEVELS, (name.count(".") for name in {op.module for op in ops}))
    yield from _tensors(ops)
    if exam.program is not None:
        done = chain.from_iterable(one.fused_from or () for one in exam.kernels)
        yield Bound("the place of an op that a kernel does", 0, len(exam.program.ops) - 1, done)


def _memory(exam: "Exam") -> Iterator[float]:
    if exam.program is not None:
        memory = exam.program.memory
        yield from (memory.peak_bytes, memory.resident_bytes, memory.saved_bytes, *memory.saved_by_module.values())


def _work(op: "Op") -> Iterator[float]:
    if op.work is not None:
        yield from (op.work.flops_dense, op.work.vector_flops, op.work.bytes_read, op.work.bytes_written)
        yield from op.work.matrix.values()
        for functions in op.work.vector.values():
            yield from functions.values()


def _tensors(ops: Iterable["Op"]) -> Iterator[Bound]:
    """The layers of a model repeat a few layouts: each is looked at once."""
    layouts = {ref[1:4] for op in ops for ref in (*op.inputs, *op.outputs)}
    offsets, shapes, strides = zip(*layouts, strict=True) if layouts else ((), (), ())
    pairs = zip(shapes, strides, strict=True)
    yield Bound("a tensor's stride", -MOST_ELEMENTS, MOST_ELEMENTS, chain(*strides))
    yield Bound("a tensor's offset", 0, MOST_ELEMENTS, offsets)
    yield Bound("a tensor's size", 0, MOST_ELEMENTS, chain(*shapes))
    yield Bound("a tensor's number of elements", 0, MOST_ELEMENTS, map(prod, shapes))
    yield Bound(
        "the number of a tensor's dimensions less that of its strides",
        0,
        0,
        (len(shape) - len(stride) for shape, stride in pairs),
    )
