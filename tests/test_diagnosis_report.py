"""What the terminal says of a diagnosis, of made-up Exams."""

import io

from rich.console import Console

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.exam import Exam
from gobrrr.report.diagnosis import render
from gobrrr.timing.kernel import KernelKind, Sync
from test_exam import doing, exam, full_exam, in_modules, kernel, small_program


def page(made: Exam) -> str:
    file = io.StringIO()
    Console(file=file, width=120).print(render(diagnose(made), "gobrrr show"))
    return file.getvalue()


def test_idle_time_is_named_the_longest_cause_first_and_a_wait_with_its_line():
    waits = (Sync("cudaStreamSynchronize", 0.5, "train.py:7"), Sync("cudaDeviceSynchronize", 0.25, None))
    shown = page(exam(kernel(0, 6), step_s=10, idle={"sync": 0.25, "python": 0.5, "data_loading": 0.25}, syncs=waits))
    assert "idle: python 2.00 s, sync 1.00 s, data loading 1.00 s" in shown
    assert "waits at train.py:7 (cudaStreamSynchronize)\n" in shown


def test_where_nobody_watched_the_host_no_cause_is_given():
    assert "idle:" not in page(exam(kernel(0, 6), step_s=10))


def test_layers_of_a_kind_are_one_line():
    shown = page(in_modules(*((f"Net.block.{i}", 1) for i in range(3)), ("Net.head", 1)))
    (line,) = [line.split() for line in shown.splitlines() if line.lstrip().startswith("block.*")]
    assert line[:6] == ["block.*", "×", "3", "3.00", "s", "75"]
    assert "longest modules" not in page(exam(kernel(0, 1)))


def test_how_the_gpu_was_used_is_one_line_of_what_is_known():
    shown = page(exam(kernel(), gpu_util_percent=97.0, gpu_clock_hz=1.98e9, gpu_power_w=612.4))
    assert "while the step was timed the GPU had 97 % utilization, 1980 MHz, 612 W\n" in shown
    assert "the GPU had" not in page(exam(kernel()))


def test_the_parts_of_overhead_add_up_with_transfers_that_nothing_covers():
    bare = exam(kernel(0, 6), kernel(5, 3, kind=KernelKind.TRANSFER), step_s=10)
    assert "2.00 s idle, 0 ns latency, 2.00 s transfers" in page(bare)
    assert "transfers" not in page(exam(kernel(0, 6), kernel(5, 1, kind=KernelKind.TRANSFER), step_s=10))


def test_a_doubt_is_told_once():
    assert page(exam(kernel(0, 11), step_s=10)).count("doubt:") == 1


def test_far_from_the_floor_without_a_finding_the_largest_part_of_the_rest_is_named():
    program = small_program()
    floor_s = diagnose(full_exam(program)).fused_floor_s
    slow, near = (
        page(
            exam(
                *(doing(i, op, i * each_s, each_s) for i, op in enumerate(program.ops)),
                program=program,
                host_s=0.0,
                step_s=2 * each_s,
            )
        )
        for each_s in (2 * floor_s, floor_s / 1.9)
    )
    assert "nothing to gain here" in near
    assert "nothing to gain here" not in slow
    assert "no known problem explains why the step is at 25 % of its floor" in slow
    assert "the largest part of the rest is" in slow
