"""Findings about the measurement itself, and the choice of findings to look for."""

from dataclasses import replace

import pytest

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.diagnose.findings import FINDINGS, selected
from gobrrr.errors import UsageError
from gobrrr.machine.doubts import Doubt
from gobrrr.timing.kernel import KernelKind
from gobrrr.work.compiler_events import Compilation
from gobrrr.work.op import CountedBy
from test_exam import exam, kernel, stored
from test_findings import chain, found, ran

# Noise, throttling, distortion, coverage


def test_windows_that_differ_by_a_quarter_are_noise():
    one = found(exam(kernel(), window_step_s=(8.0, 9.0, 10.0, 12.0, 13.0)))["B502"]
    assert one.evidence == ("5 windows of 8.00 s to 13.0 s, the middle half within 30 %",)
    assert (one.seconds_at_stake, one.device_seconds) == (None, None)


def test_windows_that_agree_are_none():
    assert "B502" not in found(exam(kernel(), window_step_s=(9.8, 10.0, 10.1, 10.0, 13.0)))


def test_a_device_that_was_held_back_says_why():
    doubt = Doubt("the power limit is 400 W, below the default of 700 W", "nvidia-smi -pl 700 as root restores it")
    (line,) = found(exam(kernel(), device_doubts=(doubt,)))["B503"].evidence
    assert line == f"{doubt.what}: {doubt.remedy}"
    assert "B503" not in found(exam(kernel()))


def test_a_step_four_times_as_long_under_the_profiler_is_distorted():
    one = found(exam(kernel(), step_profiled_s=40.0))["B504"]
    assert one.evidence == ("10.0 s a step, 40.0 s under the profiler: 4.0x",)
    assert "B504" not in found(exam(kernel(), step_profiled_s=15.0))
    assert "B504" not in found(exam(kernel(), step_profiled_s=None))


def test_an_op_without_a_formula_is_uncounted():
    program = chain(2)
    unknown = replace(program.ops[0], name="mylib::op", work=None, counted_by=CountedBy.UNKNOWN, source="mine.py:9")
    made = ran(replace(program, ops=(unknown, program.ops[1])), [1.0, 3.0])
    assert found(made)["B505"].evidence == (
        "1 kernels of unknown work take 1.00 s, 25.0 % of busy time",
        "mine.py:9: mylib::op, 1 kernel, 1.00 s",
    )


@pytest.mark.parametrize(
    "made",
    [
        ran(chain(1), [1.0]),
        exam(kernel()),
        exam(kernel(kind=KernelKind.TRANSFER), program=chain(1)),
    ],
    ids=["counted", "no program to count by", "a copy"],
)
def test_what_is_counted_or_cannot_be_is_not_uncounted(made):
    assert "B505" not in found(made)


def test_what_was_noticed_beside_the_times_is_kept(tmp_path):
    made = exam(
        kernel(),
        compilation=Compilation({"print": 2}, ("n == 3",), gave_up=True),
        allocation_retries=3,
        padding=0.25,
        device_doubts=(Doubt("hot", "cool it"),),
    )
    assert stored(made, tmp_path / "exam.json.gz") == made


# Which ones


def codes(select: str = "", ignore: str = "") -> set[str]:
    return {rule.code for rule in selected(select.split(), ignore.split())}


def test_without_a_choice_all_are_looked_for():
    assert codes() == set(FINDINGS)


@pytest.mark.parametrize(
    ("select", "ignore", "expected"),
    [
        ("B201", "", {"B201"}),
        ("b201 B301", "", {"B201", "B301"}),
        ("B6", "", {"B601", "B602"}),
        ("B6", "B601", {"B602"}),
        ("B201 B6", "B6", {"B201"}),
    ],
)
def test_a_prefix_takes_all_that_begin_with_it_and_ignoring_wins(select, ignore, expected):
    assert codes(select, ignore) == expected


@pytest.mark.parametrize(("wrong", "near"), [("B220", "B210"), ("B20l", "near it: B2"), ("X999", "the codes are B101")])
def test_a_code_that_begins_none_is_a_usage_error_with_near_ones(wrong, near):
    with pytest.raises(UsageError, match=near):
        codes(wrong)
    with pytest.raises(UsageError, match=near):
        codes("", wrong)


def test_a_diagnosis_looks_for_what_was_chosen():
    made = exam(kernel(0, 1.0), host_s=10.0, step_profiled_s=40.0)
    assert {one.code for one in diagnose(made).findings} == {"B101", "B504"}
    assert {one.code for one in diagnose(made, selected(["B5"])).findings} == {"B504"}
