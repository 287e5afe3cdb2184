"""Findings about products and memory, each on a made-up patient and on one that is well."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.findings.products import Shape
from gobrrr.diagnose.findings.wave_quantization import least_waste
from gobrrr.exam import BatchTest, Exam
from gobrrr.work.op import OpClass, Phase
from gobrrr.work.program import Memory, Program
from test_exam import exam, kernel
from test_findings import GPU, chain, found, products, ran
from test_residency import Tape, moving

H200 = replace(GPU, multiprocessors=132)
P = GPU.matmul_flops_per_s


def multiplied(m: int, n: int, k: int, dtype: str = "bf16", *, efficiency: float, **changes) -> Exam:
    """One product at so much of its mode's rate."""
    tape = Tape()
    tape.product(tape.tensor(m, k, dtype=dtype), tape.tensor(k, n, dtype=dtype))
    return ran(tape.program, [2 * m * n * k / P[dtype] / efficiency], **{"ceilings": H200, **changes})


# Alignment


def test_a_vocabulary_of_50257_gains_up_to_a_good_rate():
    made = multiplied(8192, 50257, 768, efficiency=0.14)
    one = found(made)["B302"]
    assert one.device_seconds == pytest.approx(made.step_s * (1 - 0.14 / 0.7))
    assert one.evidence[0].startswith("rows of 50257: 1 products take ")
    assert "at 14 % of the rate; 50304 is a multiple of 64" in one.evidence[0]
    assert "B304" not in found(made), "it has a name"


@pytest.mark.parametrize(
    ("words", "efficiency"), [(50304, 0.14), (50257, 0.75), (50264, 0.14)], ids=["padded", "fast", "a multiple of 8"]
)
def test_aligned_or_fast_products_are_not_misaligned(words, efficiency):
    assert "B302" not in found(multiplied(8192, words, 768, efficiency=efficiency))


def test_in_fp32_odd_rows_are_named_for_the_time_after():
    one = found(multiplied(8192, 50257, 768, "fp32", efficiency=0.9))["B302"]
    assert (one.seconds_at_stake, one.device_seconds) == (0.0, 0.0)
    assert one.evidence[-1] == "nothing lost while they run in fp32 (B301); in tf32 or bf16 much is"


def test_where_nothing_is_faster_than_fp32_odd_rows_are_no_matter():
    only = replace(H200, matmul_flops_per_s={"fp32": P["fp32"]})
    assert "B302" not in found(multiplied(8192, 50257, 768, "fp32", efficiency=0.9, ceilings=only))


def test_on_a_cpu_no_product_is_misaligned():
    assert "B302" not in found(multiplied(8192, 50257, 768, "fp32", efficiency=0.1, serial=True))


# Waves


def test_twelve_tiles_too_many_cost_nearly_a_round():
    """144 tiles of 128 × 256 on 132 places are two rounds, of 128 × 128 three: 27 % unused at the best."""
    made = multiplied(12 * 128, 12 * 256, 8192, efficiency=0.5)
    one = found(made)["B303"]
    assert one.device_seconds == pytest.approx(made.step_s * (1 - 288 / (3 * 132)))
    assert "leave 27 % of 132 multiprocessors unused" in one.evidence[0]


@pytest.mark.parametrize(
    "made",
    [
        multiplied(11 * 128, 12 * 256, 8192, efficiency=0.5),
        multiplied(12 * 128, 12 * 256, 8192, efficiency=0.9),
        multiplied(8192, 8192, 8192, efficiency=0.5),
        multiplied(12 * 128, 12 * 256, 8192, efficiency=0.5, ceilings=GPU),
        multiplied(256, 256, 256, efficiency=0.5),
    ],
    ids=["a whole round", "fast all the same", "many rounds", "unknown device", "too short to tell"],
)
def test_filled_rounds_are_not_quantized(made):
    assert "B303" not in found(made)


@given(st.integers(1, 64), st.integers(1, 64), st.integers(1, 8), st.integers(1, 200))
def test_waste_is_a_fraction_and_whole_rounds_of_the_best_tile_waste_nothing(m, n, rounds, multiprocessors):
    assert 0 <= least_waste(Shape(1, 100 * m, 100 * n, 64), multiprocessors) < 1
    assert least_waste(Shape(rounds, 128 * multiprocessors, 256, 64), multiprocessors) == 0


# Rates


def test_a_slow_product_gains_up_to_a_good_rate():
    made = multiplied(8192, 8192, 8192, efficiency=0.2)
    assert found(made)["B304"].device_seconds == pytest.approx(made.step_s * (1 - 0.2 / 0.7))


@pytest.mark.parametrize(
    "made",
    [
        multiplied(8192, 8192, 8192, efficiency=0.5),
        multiplied(64, 64, 64, efficiency=0.01),
        multiplied(8192, 8192, 8192, "fp32", efficiency=0.2, serial=True),
    ],
    ids=["good enough", "latency", "a CPU"],
)
def test_a_product_at_half_its_rate_is_well(made):
    assert "B304" not in found(made)


# Padding


def padded(share: float | None) -> Exam:
    tape = Tape()
    x = tape.pointwise(tape.tensor(64))
    tape.op("_fused_adamw_", OpClass.OPTIMIZER, [x], [x], phase=Phase.OPTIMIZER, work=moving([x], [x]))
    return ran(tape.program, [3.0, 1.0], padding=share)


def test_padding_wastes_its_share_of_all_but_the_optimizer():
    one = found(padded(0.75))["B305"]
    assert one.device_seconds == one.seconds_at_stake == pytest.approx(0.75 * 3.0)
    assert one.evidence == ("75.0 % of the tokens are padding, in 3.00 s of the device's time a step",)


@pytest.mark.parametrize("share", [None, 0.0, 0.1])
def test_sequences_of_like_length_waste_little(share):
    assert "B305" not in found(padded(share))


# Memory

GiB = 1 << 30
CARD = replace(GPU, memory_bytes=100 * GiB)


def holding(peak: int, saved: int = 0, **changes) -> Exam:
    program = Program(chain(1).ops, Memory(peak, 10 * GiB, saved, {}))
    return ran(program, [1.0], peak_memory_bytes=peak, **{"ceilings": CARD, **changes})


def test_a_step_that_holds_nearly_all_memory_is_told():
    one = found(holding(95 * GiB, 60 * GiB))["B601"]
    assert one.seconds_at_stake is None
    assert one.evidence == (
        "95.0 GiB alive at once of 100 GiB, 95 %",
        "60.0 GiB of it are activations saved for the backward pass",
    )


def test_an_allocator_that_ran_out_is_told_whatever_was_counted():
    assert (
        found(holding(70 * GiB, allocation_retries=2))["B601"].evidence[-1].startswith("the allocator ran out 2 times")
    )


@pytest.mark.parametrize("made", [holding(70 * GiB), holding(95 * GiB, ceilings=GPU)], ids=["room", "unknown size"])
def test_a_step_with_room_is_not_near_the_limit(made):
    assert "B601" not in found(made)


def doubled(ratio: float, peak: int = 20 * GiB) -> Exam:
    made = holding(peak)
    return replace(made, batch_test=BatchTest(((1.0, ratio),) * 10, None))


def test_twice_the_batch_in_little_more_time_halves_a_sample():
    """1.2 s for two instead of 2: 0.4 of a step for each."""
    one = found(doubled(1.2))["B602"]
    assert one.seconds_at_stake == pytest.approx(0.4)
    assert one.evidence == (
        "twice the batch takes 1.20x the time: 40 % less for each sample",
        "it would need about 30.0 GiB of 100 GiB",
    )


@pytest.mark.parametrize(
    "made", [doubled(1.9), doubled(1.2, peak=60 * GiB), holding(20 * GiB)], ids=["work", "no room", "not tested"]
)
def test_a_batch_that_costs_its_time_or_does_not_fit_stays(made):
    assert "B602" not in found(made)


def test_products_in_bf16_on_a_machine_of_known_size_are_well():
    floor_s = 2 * 4096**3 / P["bf16"]
    assert found(ran(products("bf16"), [floor_s / 0.8] * 4, ceilings=H200)) == {}


def test_nothing_is_said_of_kernels_that_nobody_knows():
    assert {"B302", "B303", "B304"}.isdisjoint(found(exam(kernel(0, 5.0), host_s=5.0, ceilings=H200)))
