"""A loss that a step asks torch for by cross_entropy: where nothing that is compiled holds it, it is generated alone.

Eager it goes over the logits some nine times, and in fp32 whatever they are in: a cast, log-softmax, their gradients,
zeros to write one number a row into. Generated it reads them once, or twice on a CPU, and its gradient reads them and
writes itself. Eager it takes 5.4 ms of GPT-2's step of 8 × 1024 tokens on an H200, where three passes would take 0.6.
"""

from collections.abc import Callable
from typing import Any

from gobrrr.timing.state import preserved
from gobrrr.treat.attention import calls_heard
from gobrrr.treat.chart import Chart
from gobrrr.treat.cross_entropy import LOSS, is_known, is_torchs
from gobrrr.treat.fusing import compiled_host_s
from gobrrr.treat.stillness import idle_optimizers, uncompiled
from gobrrr.treat.subject import Subject
from gobrrr.work.op import Op
from gobrrr.work.registry import canonical

FIRST = "_log_softmax"

PARTS = frozenset({FIRST, "_log_softmax_backward_data", "nll_loss_forward", "nll_loss_backward"})
"""What it consists of, there and back."""

CASTS = frozenset({"_to_copy", "to"})


def of_the_loss(chart: Chart) -> Callable[[Op], bool]:
    """Whether an op is part of it: a cast of the logits or of their gradient is too."""
    shapes = logits_asked_for(chart.subject)
    parts = [op for op in chart.ops if _is_part(op, shapes)]
    theirs = {ref.storage for op in parts for ref in (*op.inputs, *op.outputs)} - {None}
    casts = [op for op in chart.ops if canonical(op.name) in CASTS and theirs.intersection(_storages(op))]
    known = {id(op) for op in (*parts, *casts)}
    return lambda op: id(op) in known


def _is_part(op: Op, shapes: frozenset[tuple[int, ...]]) -> bool:
    return canonical(op.name) in PARTS and any(ref.shape in shapes for ref in (*op.inputs, *op.outputs))


def _storages(op: Op) -> set[int | None]:
    return {ref.storage for ref in (*op.inputs, *op.outputs)}


def and_the_loss(chart: Chart, sites: tuple[str, ...], inside: Callable[[Op], bool]) -> Callable[[Op], bool]:
    """Whether an op is inside, or of the loss where that is among the sites."""
    if LOSS not in sites:
        return inside
    of_loss = of_the_loss(chart)
    return lambda op: inside(op) or of_loss(op)


def loss_alone(chart: Chart) -> tuple[str, ...]:
    """The site, where a step asks for it and it runs op by op; else none."""
    shapes = logits_asked_for(chart.subject)
    return (LOSS,) if any(canonical(op.name) == FIRST and _is_part(op, shapes) for op in chart.exam.ran) else ()


def loss_beside(chart: Chart, inside: Callable[[Op], bool]) -> tuple[str, ...]:
    """The same, where it will not be inside of what else is compiled, and is worth to enter compiled code for."""
    of_loss = of_the_loss(chart)
    beside = any(canonical(op.name) == FIRST and of_loss(op) and not inside(op) for op in chart.ops)
    return loss_alone(chart) if beside and gained_s(chart) > 0 else ()


def gained_s(chart: Chart) -> float:
    """Of device and host together: whichever limits the step by now, the other one may when it is compiled."""
    of_loss = of_the_loss(chart)
    ops, kernels = list(filter(of_loss, chart.ops)), len(chart.fused_groups(of_loss))
    return chart.fusable_s(of_loss)[0] + compiled_host_s(chart, ops, kernels=kernels, calls=1)


def logits_asked_for(subject: Subject) -> frozenset[tuple[int, ...]]:
    """Their sizes, of losses of the step as it came that can be generated."""
    if subject.logits is None:
        with subject.ended():
            subject.logits = _heard(subject) if is_torchs() else frozenset()
    return subject.logits


def _heard(subject: Subject) -> frozenset[tuple[int, ...]]:
    import torch

    shapes: set[tuple[int, ...]] = set()

    def note(*args: Any, **kwargs: Any) -> None:
        if is_known(*args, **kwargs):
            logits = args[0] if args else kwargs["input"]
            shapes.add(tuple(logits.shape))

    with (
        uncompiled(subject),
        preserved(subject.origin),
        idle_optimizers(subject),
        calls_heard(torch.nn.functional.cross_entropy, note),
    ):
        subject.run()
    return frozenset(shapes)
