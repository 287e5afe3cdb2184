"""What the formats are given: places of bubbles, lanes and gaps, the waterfall, the factory, against closed forms."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.rows import layers_as_one
from gobrrr.machine.elsewhere import ceilings_of
from gobrrr.report.bubbles import roofline_view
from gobrrr.report.factory import MACHINES, factory_view
from gobrrr.report.lanes import lanes_view
from gobrrr.report.plain import MOST, plain
from gobrrr.report.view import step_view
from gobrrr.report.waterfall import treatment_view
from gobrrr.trace_examination import examine_trace
from reported import HOSTILE, bert, examined, odd, recorded, treated
from test_exam import doing, exam, kernel, small_program
from traces import Tape

RECORDED = ("exams/bert_large", "exams/llama_decode", "exams/cpu_chain", "mlp")


@pytest.mark.parametrize("name", RECORDED)
def test_pieces_add_to_their_part_and_parts_to_the_step(name):
    view = step_view(recorded(name).diagnosis)
    assert sum(part.seconds for part in view.parts) == pytest.approx(view.step_s)
    for part in view.parts:
        if part.pieces:
            assert sum(piece.seconds for piece in part.pieces) == pytest.approx(part.seconds)


@pytest.mark.parametrize("name", RECORDED)
def test_ops_hold_all_busy_time_and_classes_all_flops(name):
    one = recorded(name)
    view = step_view(one.diagnosis)
    assert sum(line.seconds for line in view.ops) == pytest.approx(one.diagnosis.busy_s)
    assert sum(line.flops_share or 0 for line in view.classes) == pytest.approx(1)


def test_a_class_is_compared_with_contractions_as_in_the_article():
    classes = {line.name: line for line in step_view(bert().diagnosis).classes}
    assert classes["contraction"].slower == 1
    normalization = classes["normalization"]
    assert normalization.slower == pytest.approx(classes["contraction"].flops_per_s / normalization.flops_per_s)


def test_an_op_names_the_findings_whose_evidence_names_its_line():
    view = step_view(bert().diagnosis)
    line = next(line for line in view.ops if line.findings)
    for code in line.findings:
        (found,) = [found for found in view.findings if found.code == code]
        assert any(line.source in evidence for evidence in found.evidence)


# the roofline


def test_a_bubble_stands_at_its_intensity_and_rate_and_its_ceiling_above_it():
    one = bert()
    ops = step_view(one.diagnosis).ops
    view = roofline_view(one.exam, ops)
    for line, bubble in zip(ops, view.bubbles, strict=True):
        if bubble is not None and line.flops and line.intensity > 2 * view.x_low:
            assert bubble.x == pytest.approx(line.intensity)
            assert bubble.y == pytest.approx(line.flops / line.seconds)
            assert bubble.ceiling / bubble.y == pytest.approx(line.seconds / line.floor_s)


def test_what_only_moves_bytes_is_as_far_below_the_slope_as_below_the_bandwidth():
    one = bert()
    ops = step_view(one.diagnosis).ops
    view = roofline_view(one.exam, ops)
    movers = [(line, bubble) for line, bubble in zip(ops, view.bubbles, strict=True) if line.flops == 0 and bubble]
    assert movers
    for line, bubble in movers:
        slope = bubble.x * one.exam.ceilings.dram_bytes_per_s
        assert bubble.y / slope == pytest.approx(line.bytes_per_s / one.exam.ceilings.dram_bytes_per_s)


def test_every_ceiling_lies_within_the_picture_and_slopes_meet_roofs():
    view = roofline_view(bert().exam, step_view(bert().diagnosis).ops)
    for line in view.ceilings:
        assert view.x_low <= line.x <= line.x_end <= view.x_high
        assert view.y_low * 0.999 <= line.y <= line.y_end <= view.y_high
        if line.slope:
            assert math.log(line.y_end / line.y) == pytest.approx(math.log(line.x_end / line.x))


def test_a_bubble_is_as_large_as_its_time_beside_all_ops_and_not_beside_the_few_that_have_a_place():
    one = recorded("exams/llama_decode")
    longest = step_view(one.diagnosis).ops[0]
    counted, unknown = replace(longest, seconds=1e-6, share=0.1), replace(longest, regime="uncounted", share=0.9)
    view = roofline_view(one.exam, (unknown, counted))
    assert view.longest_s == unknown.seconds
    assert view.note == "ops of unknown work have no place here: 90 % of the step"
    assert roofline_view(one.exam, (counted,)).note is None


def test_roofs_too_close_for_a_name_each_share_one():
    labels = [line.label for line in roofline_view(bert().exam, ()).ceilings if not line.slope]
    assert "vector fp32 64.9 TFLOP/s · fp32 49.5 TFLOP/s" in labels
    assert "" in labels


def test_roofs_that_are_equal_share_a_number():
    ceilings, _ = ceilings_of("NVIDIA H200")
    labels = {line.label: line.short for line in roofline_view(replace(bert().exam, ceilings=ceilings), ()).ceilings}
    assert labels["fp16, bf16 792 TFLOP/s"] == "fp16 · bf16"


@pytest.mark.parametrize("name", odd())
def test_an_odd_exam_has_a_view_and_says_what_is_missing(name):
    one = odd()[name]
    view = step_view(one.diagnosis)
    roofline, lanes = roofline_view(one.exam, view.ops), lanes_view(one)
    assert len(roofline.bubbles) == len(view.ops)
    if name in ("no ops", "no program"):
        assert roofline.missing
    if name == "no ops":
        assert lanes.note == "no kernel was recorded"


def test_a_machine_of_unknown_ceilings_has_no_roofline():
    unknown = replace(bert().exam.ceilings, matmul_flops_per_s={}, vector_flops_per_s={}, dram_bytes_per_s=None)
    view = roofline_view(replace(bert().exam, ceilings=unknown), step_view(bert().diagnosis).ops)
    assert view.missing == "the ceilings of this machine are not known"


# lanes


@pytest.mark.parametrize("name", RECORDED)
def test_every_kernel_has_its_bar_and_its_line_of_the_ops(name):
    one = recorded(name)
    rows = layers_as_one(one.diagnosis.ops)
    bars = [bar for bar in lanes_view(one).bars if bar.kind == "kernel"]
    assert sorted(bar.seconds for bar in bars) == sorted(kernel.seconds for kernel in one.exam.kernels)
    calls = [0] * len(rows)
    for bar in bars:
        calls[bar.op] += 1
    assert calls == [row.calls for row in rows]


def test_a_gap_says_whether_the_host_had_asked_already():
    op = replace(small_program().ops[0], source="train.py:7")
    program = replace(small_program(), ops=(op, op, op))
    one = examined(
        exam(
            doing(0, op, 0.0, 1.0, launched_s=0.0),
            doing(1, op, 2.0, 1.0, launched_s=1.9),
            doing(2, op, 4.0, 1.0, launched_s=2.5),
            program=program,
        )
    )
    late, early = [bar for bar in lanes_view(one).bars if bar.kind == "gap"]
    assert (late.start_s, late.seconds, late.what) == (
        1.0,
        1.0,
        f"waits for the host to ask for {op.name} at train.py:7",
    )
    assert (early.start_s, early.what) == (3.0, f"{op.name} was launched already: latency of the launch")


def test_gaps_and_kernels_of_one_stream_fill_the_step():
    view = lanes_view(bert())
    covered = sum(bar.seconds for bar in view.bars if bar.lane == "device")
    assert covered == pytest.approx(view.end_s - view.start_s, rel=0.02)


def test_streams_have_lanes_of_their_own():
    view = lanes_view(examined(exam(kernel(0, 1, stream=7), kernel(0, 1, stream=9))))
    assert view.lanes == ("stream 7", "stream 9")


def test_a_step_is_drawn_from_its_own_beginning(tmp_path):
    """And its streams have the numbers that the trace gives them."""
    tape = Tape()
    tape.step(0, 5000.0, 400.0)
    for place, stream in enumerate((7, 20)):
        tape.op("aten::add", 5010.0 + 100 * place, 30.0)
        tape.number += 1
        tape.span("call", "cudaLaunchKernel", 5015.0 + 100 * place, 4.0, correlation=tape.number)
        where = {"pid": 0, "tid": stream, "device": 0, "stream": stream}
        tape.span("kernel", "k", 5030.0 + 100 * place, 10.0, correlation=tape.number, **where)
    view = lanes_view(examined(examine_trace(tape.save(tmp_path / "t.json"))))
    assert view.start_s == min(bar.start_s for bar in view.bars if bar.kind == "kernel") == 0
    assert view.end_s == pytest.approx(110e-6, rel=0.2)
    assert {"stream 7", "stream 20"} <= set(view.lanes)


def test_a_host_that_is_far_ahead_is_told_of():
    assert "before the device began" in lanes_view(recorded("exams/llama_decode")).note


# factory, waterfall, text


def test_a_factory_of_which_little_is_known_says_so(tmp_path):
    tape = Tape()
    tape.step(0, 0.0, 100.0)
    tape.launch("graph", 5.0, 10.0, 80.0)
    made = examined(examine_trace(tape.save(tmp_path / "t.json")))
    view = factory_view(made.exam, made.diagnosis)
    assert (view.bytes, view.flops_per_s) == (None, None)
    assert view.note is not None
    assert view.note.endswith("of the step is work that nobody counted")


def test_the_factory_draws_as_much_as_the_shares_say():
    one = bert()
    view = factory_view(one.exam, one.diagnosis)
    assert view.machines == round(one.diagnosis.shares["compute"] * MACHINES)
    assert (view.mode, view.orders) == ("bf16", len(one.exam.kernels))
    assert view.floor_flops_per_s == one.exam.ceilings.matmul_flops_per_s["bf16"]


def test_levels_of_the_waterfall_follow_from_the_ratios():
    levels = treatment_view(treated()).levels
    assert [level.name for level in levels] == [
        "as it was",
        "compile",
        "whole-step-graph",
        "treated",
        "fused floor",
        "compulsory floor",
    ]
    assert [(level.from_s, level.to_s) for level in levels[:4]] == [(0, 0.1), (0.1, 0.05), (0.05, 0.04), (0, 0.04)]
    assert levels[1].predicted_s == pytest.approx(0.1 / 2.2)


@pytest.mark.parametrize("text", HOSTILE.values(), ids=HOSTILE)
def test_plain_text_is_one_printable_line_of_bounded_length(text):
    shown = plain(text)
    assert shown.isprintable()
    assert len(shown) <= MOST + 3
    shown.encode()


@given(st.text(max_size=MOST))
def test_plain_text_keeps_every_character_or_marks_it(text):
    assert len(plain(text)) == len(text)


@given(st.text(alphabet=st.characters(min_codepoint=32, max_codepoint=126), max_size=MOST))
def test_plain_text_leaves_what_is_harmless(text):
    assert plain(text) == text
