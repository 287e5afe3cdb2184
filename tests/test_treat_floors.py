"""A step below the compulsory floor: a mistake, unless it was the machine that had been measured amid noise."""

from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr import schema
from gobrrr.diagnose.compulsory import compulsory_floor
from gobrrr.exam import Exam
from gobrrr.machine import Ceilings, datasheets
from gobrrr.treat.floors import Floors
from gobrrr.treat.treatment import TREATMENTS, Dose

DATA = Path(__file__).parent / "data"
EXAMS, SLOW_MATH = DATA / "exams", DATA / "patients" / "h200" / "B301-slow_math-sick.json.gz"


@cache
def quiet() -> Exam:
    """Of a decoded token, on a machine that no vendor speaks of."""
    exam = schema.read(Exam, EXAMS / "llama_decode.json.gz")
    return replace(exam, ceilings=replace(exam.ceilings, device="a machine of nobody's"))


def slower(ceilings: Ceilings, times: float) -> Ceilings:
    """As if somebody else had been at work."""
    return replace(
        ceilings,
        dram_bytes_per_s=ceilings.dram_bytes_per_s / times,
        matmul_flops_per_s={mode: rate / times for mode, rate in ceilings.matmul_flops_per_s.items()},
    )


class Asked:
    """Measures what it was told to, and counts."""

    def __init__(self, found: Ceilings) -> None:
        self.found, self.times = found, 0

    def __call__(self) -> Ceilings:
        self.times += 1
        return self.found


def test_a_machine_that_was_measured_amid_noise_is_measured_again_before_a_step_is_called_a_mistake():
    exam = quiet()
    floor_s = compulsory_floor(exam.program, exam.ceilings).seconds
    again = Asked(exam.ceilings)
    floors = Floors(replace(exam, ceilings=slower(exam.ceilings, 2)), again)
    assert floors.compulsory_s(()) == pytest.approx(2 * floor_s)
    assert floors.violated_s((), 3 * floor_s) is None
    assert again.times == 0, "nobody doubts it yet"
    assert floors.violated_s((), 1.5 * floor_s) is None
    assert floors.compulsory_s(()) == pytest.approx(floor_s)
    assert floors.violated_s((), 0.9 * floor_s) == pytest.approx(floor_s)
    assert again.times == 1


def test_measured_again_and_slower_the_better_of_both_counts():
    exam = quiet()
    floors = Floors(exam, Asked(slower(exam.ceilings, 3)))
    floor_s = floors.compulsory_s(())
    assert floors.violated_s((), 0.9 * floor_s) == floors.compulsory_s(()) == floor_s


def test_what_a_vendor_says_is_not_measured_again():
    exam = schema.read(Exam, EXAMS / "llama_decode.json.gz")
    assert datasheets.find(exam.ceilings.device) is not None
    again = Asked(exam.ceilings)
    floors = Floors(exam, again)
    assert floors.violated_s((), 0.9 * floors.compulsory_s(())) == floors.compulsory_s(())
    assert again.times == 0


def test_floors_are_those_of_the_precision_that_is_kept():
    """Half as wide, a step of products has less to do; in weights of a byte nobody knows how much less."""
    exam = schema.read(Exam, SLOW_MATH)
    floors = Floors(exam, Asked(exam.ceilings))
    as_it_came, half, quantized = (
        tuple(Dose(TREATMENTS[name], ()) for name in names) for names in ((), ("bf16-autocast",), ("int8-weight-only",))
    )
    for floor_s in (floors.compulsory_s, floors.fused_s):
        assert floor_s(half) < 0.5 * floor_s(as_it_came)
        assert floor_s(quantized) is None
    assert floors.violated_s(quantized, 0.0) is None
    assert floors.compulsory_s(()) <= floors.fused_s(())
