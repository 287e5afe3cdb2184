"""Events of torch's profiler as spans, trees of ops, and unions of stretches."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.timing.recording import recorded
from gobrrr.timing.timeline import (
    OpNode,
    Span,
    SpanKind,
    Timeline,
    asked_for_within,
    merged,
    op_forest,
    overlap_s,
    timeline,
)


def event(cat: str, name: str, ts: float, dur: float, *, tid: int = 1, **args) -> dict:
    """As torch's profiler writes it, in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": 7, "tid": tid, "ts": ts, "dur": dur, "args": args}


def op(name: str, start_s: float, end_s: float, *, lane: int = 1, number: int | None = None, shape=None) -> Span:
    return Span(SpanKind.OP, name, lane, start_s, end_s - start_s, op=number, shape=shape)


def shown(nodes: list[OpNode]) -> list:
    """Names, each with what is inside it if there is anything."""
    return [(node.span.name, shown(node.children)) if node.children else node.span.name for node in nodes]


def everywhere(nodes) -> list[OpNode]:
    return [found for node in nodes for found in (node, *everywhere(node.children))]


# Events


def test_events_become_spans_in_seconds_from_the_first():
    found = timeline(
        [
            event("kernel", "gemm", 1010.0, 5.5, stream=7, correlation=3),
            event("cpu_op", "aten::mm", 1000.0, 8.0, **{"External id": 42, "Input Dims": [[2, 3], [3, 4]]}),
            event("cuda_runtime", "cudaLaunchKernel", 1002.0, 1.0, correlation=3, **{"External id": 42}),
        ]
    )
    (mm,), (launch,), (gemm,) = found.ops, found.runtime, found.device
    assert (mm.kind, mm.name, mm.lane, mm.op, mm.shape) == (SpanKind.OP, "aten::mm", 1, 42, (2, 3))
    assert (mm.start_s, mm.seconds) == (0, pytest.approx(8e-6))
    assert (launch.kind, launch.correlation, launch.op) == (SpanKind.RUNTIME, 3, 42)
    assert (gemm.kind, gemm.lane, gemm.correlation) == (SpanKind.KERNEL, 7, 3)
    assert (gemm.start_s, gemm.end_s) == (pytest.approx(10e-6), pytest.approx(15.5e-6))


def test_copies_are_transfers_and_a_fill_is_a_kernel():
    copies = [event("gpu_memcpy", "Memcpy HtoD", 5, 1, stream=7), event("gpu_memset", "Memset", 1, 1, stream=7)]
    assert [(span.kind, span.name) for span in timeline(copies).device] == [
        (SpanKind.KERNEL, "Memset"),
        (SpanKind.TRANSFER, "Memcpy HtoD"),
    ]


def test_what_python_named_is_an_annotation_of_its_thread():
    (found,) = timeline([event("user_annotation", "enumerate(DataLoader)#X.__next__", 5, 90, tid=3)]).annotations
    assert (found.kind, found.name, found.lane) == (SpanKind.ANNOTATION, "enumerate(DataLoader)#X.__next__", 3)
    assert found.seconds == pytest.approx(90e-6)


@pytest.mark.parametrize(
    "other",
    [
        {"ph": "M", "name": "process_name", "pid": 7, "args": {"name": "python"}},
        {"ph": "s", "cat": "ac2g", "name": "ac2g", "id": 3, "ts": 1},
        event("python_function", "model.py(3): forward", 0, 900),
        event("gpu_user_annotation", "ProfilerStep#0", 0, 900),
        event("overhead", "Buffer Flush", 0, 900),
        {"ph": "X", "cat": "cpu_op", "name": "never ended", "tid": 1, "ts": 0},
    ],
    ids=lambda other: str(other["name"]),
)
def test_what_is_no_span_is_passed_over_and_does_not_set_the_clock(other):
    found = timeline([other, event("cpu_op", "aten::add", 100, 1)])
    assert [(span.name, span.start_s) for span in found.ops] == [("aten::add", 0)]
    assert not found.runtime
    assert not found.device


def test_nothing_recorded_is_an_empty_timeline():
    assert timeline([]) == timeline([{"ph": "M", "name": "process_name"}])
    assert not timeline([]).ops


@pytest.mark.parametrize(
    ("dims", "shape"),
    [
        ([[2, 3], [3]], (2, 3)),
        ([[], [4]], (4,)),
        ([[[5, 6], [7]], []], (5, 6)),
        ([[[], [7]]], (7,)),
        ([[], []], None),
        ([], None),
    ],
)
def test_the_shape_is_that_of_the_first_tensor_that_has_one(dims, shape):
    (found,) = timeline([event("cpu_op", "aten::cat", 0, 1, **{"Input Dims": dims})]).ops
    assert found.shape == shape


# Trees


def test_ops_nest_by_containment_thread_by_thread():
    ops = [
        op("linear", 0, 10),
        op("backward", 1, 9, lane=2),
        op("t", 1, 2),
        op("addmm", 2, 9),
        op("gemm", 3, 8),
        op("relu", 10, 12),
    ]
    assert shown(op_forest(ops)) == [("linear", ["t", ("addmm", ["gemm"])]), "backward", "relu"]


def test_of_two_that_start_together_the_longer_is_outside():
    events = [event("cpu_op", "inner", 5, 1), event("cpu_op", "outer", 5, 3)]
    assert shown(op_forest(timeline(events).ops)) == [("outer", ["inner"])]


@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.integers(0, 10**12))
def test_neighbours_that_touch_are_no_children_of_each_other(lengths_ns, began_ns):
    """Whatever rounding does to the end of one and the start of the next."""
    events, at_ns = [], began_ns
    for number, length in enumerate(lengths_ns):
        events.append(event("cpu_op", str(number), at_ns / 1000, length / 1000))
        at_ns += length
    around = event("cpu_op", "around", began_ns / 1000, (at_ns - began_ns) / 1000)
    (root,) = op_forest(timeline([around, *events]).ops)
    assert shown(root.children) == [str(number) for number in range(len(lengths_ns))]


@st.composite
def nested(draw, depth: int = 3) -> list[dict]:
    """Events of one op with ops inside, and inside those; times in whole microseconds."""

    def inside(start: int, end: int, left: int) -> list[dict]:
        cuts = sorted(draw(st.sets(st.integers(start, end), max_size=6))) if left else []
        pieces = list(zip(cuts[::2], cuts[1::2], strict=False))
        return [
            made
            for low, high in pieces
            if (low, high) != (start, end)
            for made in (event("cpu_op", "x", low, high - low), *inside(low, high, left - 1))
        ]

    return [event("cpu_op", "root", 0, 1000), *inside(0, 1000, depth)]


@given(nested())
def test_self_times_add_up_to_the_time_of_the_root(events):
    (root,) = op_forest(timeline(events).ops)
    nodes = everywhere([root])
    assert len(nodes) == len(events)
    assert math.fsum(node.self_s for node in nodes) == pytest.approx(1e-3)
    assert all(node.self_s >= -1e-12 for node in nodes)


# Stretches

STRETCHES = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 12)), max_size=12)


def covered(stretches, low=0, high=100) -> int:
    """Whole moments in any of them, counted one by one."""
    return len({at for start, length in stretches for at in range(start, start + length)} & set(range(low, high)))


def spans(stretches) -> list[Span]:
    return [op("x", start, start + length) for start, length in stretches]


@given(STRETCHES)
def test_merged_stretches_are_apart_sorted_and_as_long_as_the_union(stretches):
    union = merged(spans(stretches))
    assert sum(end - start for start, end in union) == covered(stretches)
    assert all(one[1] < following[0] for one, following in pairwise(union))


@given(STRETCHES, st.integers(0, 80), st.integers(0, 30))
def test_an_overlap_is_what_counting_each_moment_gives(stretches, start, length):
    assert overlap_s(start, start + length, merged(spans(stretches))) == covered(stretches, start, start + length)


# A real recording


def test_a_recorded_step_has_its_ops_with_shapes_and_nothing_of_a_device():
    x, weight = torch.randn(8, 16), torch.randn(4, 16, requires_grad=True)
    found = recorded(lambda: torch.nn.functional.linear(x, weight).sum().backward(), lambda: None, ops=True)
    forest = op_forest(found.ops)
    (linear,) = [node for node in forest if node.span.name == "aten::linear"]
    assert linear.span.shape == (8, 16)
    assert "aten::mm" in [node.span.name for node in everywhere([linear])]
    assert any("Backward" in node.span.name for node in forest)
    assert not found.device
    times = [node.self_s for node in everywhere(forest)]
    assert math.fsum(times) == pytest.approx(math.fsum(node.span.seconds for node in forest))
    assert min(times) > -1e-9


def test_what_was_asked_for_before_the_recording_is_not_the_steps():
    launch = Span(SpanKind.RUNTIME, "cudaLaunchKernel", 1, 0.0, 1.0, correlation=2)
    earlier, own = (Span(SpanKind.KERNEL, "kernel", 7, float(number), 1.0, correlation=number) for number in (1, 2))
    kept = asked_for_within(Timeline(runtime=(launch,), device=(earlier, own)))
    assert kept.device == (own,)
    assert kept.runtime == (launch,)
