"""The floor of an op, the split of its time, and the floor below all floors."""

from dataclasses import replace
from fractions import Fraction
from math import nextafter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from counting import programmed
from gobrrr.diagnose.compulsory import compulsory_floor, least_bytes, needed_flops
from gobrrr.diagnose.floor import Floor, Level, floor, op_floors, split
from gobrrr.diagnose.regime import Regime
from gobrrr.diagnose.residency import Access, Traffic
from gobrrr.machine import datasheets
from gobrrr.machine.ceilings import Ceilings
from gobrrr.work.op import OpClass, Phase
from gobrrr.work.work import Work
from test_residency import MiB, Tape, moving

CPU = Ceilings(
    device="a made-up CPU",
    kind="cpu",
    threads=2,
    measured_at="2026-11-15T00:00:00+00:00",
    matmul_flops_per_s={"fp32": 100e9, "bf16": 200e9},
    vector_flops_per_s={"fp32": 50e9},
    transcendental_cost={"exp": 10},
    dram_bytes_per_s=10e9,
    cache_bytes_per_s=40e9,
    cache_bytes=16 * MiB,
)


def dram(nbytes: float) -> Traffic:
    return Traffic(dram_read=nbytes)


def test_the_longest_of_matrix_vector_and_memory_is_the_floor():
    work = Work(matrix={"fp32": 100e9, "bf16": 100e9}, vector={"fp32": {"exp": 1e9}})
    assert floor(work, dram(1e9), CPU) == Floor(1.5, Regime.COMPUTE, Level.MATRIX)
    assert floor(replace(work, matrix={}), dram(1e9), CPU) == Floor(0.4, Regime.COMPUTE, Level.VECTOR)
    assert floor(work, dram(20e9), CPU) == Floor(2.0, Regime.BANDWIDTH, Level.DRAM)


def test_memory_and_cache_take_turns():
    both = Traffic(dram_read=10e9, cache_read=20e9)
    assert floor(Work(), both, CPU) == Floor(1.5, Regime.BANDWIDTH, Level.DRAM)
    assert floor(Work(), Traffic(dram_read=1e9, cache_written=40e9), CPU).level is Level.CACHE


def test_a_multiply_add_takes_a_slot_and_half_types_are_computed_in_fp32():
    for arithmetic in ("fp32", "bf16", "fp16"):
        assert floor(Work(vector={arithmetic: {"fma": 25e9}}), dram(0), CPU).seconds == 1


def test_what_is_not_known_stays_unknown():
    assert floor(None, dram(1), CPU) is None
    assert floor(Work(), None, CPU) is None
    assert floor(Work(matrix={"fp16": 1}), dram(0), CPU) is None
    assert floor(Work(vector={"fp64": {"fma": 1}}), dram(0), CPU) is None
    assert floor(Work(), Traffic(cache_read=1), replace(CPU, cache_bytes_per_s=None)) is None


def test_a_missing_ceiling_of_what_is_not_needed_does_not_matter():
    bare = replace(CPU, matmul_flops_per_s={}, vector_flops_per_s={}, cache_bytes_per_s=None)
    assert floor(Work(matrix={"fp16": 0}, vector={"fp64": {}}), dram(10e9), bare).seconds == 1


def test_a_view_has_a_floor_of_nothing_and_an_op_of_unknown_work_none():
    tape = Tape()
    x = tape.tensor(100)
    tape.op("view", OpClass.OTHER, [x], [x], work=Work(), launches=False)
    tape.pointwise(x)
    tape.ops[1] = replace(tape.ops[1], work=None)
    view, unknown = op_floors(tape.ops, CPU)
    assert view.seconds == 0
    assert unknown is None


def test_beyond_105_percent_of_a_ceiling_is_flagged_and_never_clamped():
    ceiling = Floor(1.0, Regime.COMPUTE, Level.MATRIX)
    assert not ceiling.is_beaten_by(0.96)
    assert ceiling.is_beaten_by(0.95)
    assert ceiling.fraction(0.5) == 2


TIMES = st.fractions(0, 10)


@given(TIMES, TIMES, TIMES)
def test_the_parts_of_a_time_add_up_to_it_exactly(t, floor_s, k):
    parts = split(t, floor_s, k)
    assert parts.attained + parts.latency + parts.inefficient == t
    assert min(parts.attained, parts.latency, parts.inefficient) >= 0


@given(st.floats(0, 1e3), st.floats(0, 1e3), st.floats(0, 1e3))
def test_and_in_floating_point_to_the_last_digit(t, floor_s, k):
    parts = split(t, floor_s, k)
    summed = parts.attained + parts.latency + parts.inefficient
    assert nextafter(t, 0) <= summed <= nextafter(t, float("inf"))


@given(TIMES, TIMES, TIMES, st.fractions(0, Fraction(1, 100)), st.sampled_from(range(3)))
def test_a_split_has_no_cliff(t, floor_s, k, little, which):
    """Moving any of the three by a little moves no part by more."""
    before = split(t, floor_s, k)
    after = split(*(value + (little if place == which else 0) for place, value in enumerate((t, floor_s, k))))
    for part in ("attained", "latency", "inefficient"):
        assert abs(getattr(after, part) - getattr(before, part)) <= little


def test_a_small_kernel_is_latency_and_a_slow_one_inefficient():
    assert split(3.0, 1.0, 3.0).latency == 2
    assert split(3.0, 1.0, 0.5).inefficient == 2


WORKS = st.builds(
    lambda matrix, fmas: Work(matrix={"fp32": matrix}, vector={"fp32": {"fma": fmas}}),
    st.integers(0, 10**12),
    st.integers(0, 10**12),
)


def faster(ceilings: Ceilings, factor: float) -> Ceilings:
    return replace(
        ceilings,
        matmul_flops_per_s={mode: factor * rate for mode, rate in ceilings.matmul_flops_per_s.items()},
        vector_flops_per_s={dtype: factor * rate for dtype, rate in ceilings.vector_flops_per_s.items()},
        dram_bytes_per_s=factor * ceilings.dram_bytes_per_s,
        cache_bytes_per_s=factor * ceilings.cache_bytes_per_s,
    )


@given(WORKS, st.integers(1, 10**12), st.sampled_from([0.25, 0.5, 2.0, 8.0]))
def test_a_floor_scales_with_the_ceilings_and_keeps_its_regime(work, nbytes, factor):
    """Powers of two, which floating point scales by exactly, so that ties stay ties."""
    slow, fast = floor(work, dram(nbytes), CPU), floor(work, dram(nbytes), faster(CPU, factor))
    assert slow == fast._replace(seconds=factor * fast.seconds)


@given(WORKS, WORKS, st.integers(0, 10**12), st.integers(0, 10**12))
def test_doing_two_things_at_once_takes_no_longer_than_one_after_the_other(one, other, few, many):
    together = floor(one + other, dram(few + many), CPU).seconds
    apart = floor(one, dram(few), CPU).seconds + floor(other, dram(many), CPU).seconds
    assert together <= apart * (1 + 1e-12)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 20)), max_size=10))
def test_a_union_is_never_more_than_the_sum_nor_less_than_its_largest_part(pieces):
    stretches = [Access(1, start, start + size, size, writes=False) for start, size in pieces]
    least = least_bytes(stretches)
    assert least <= len({byte for start, size in pieces for byte in range(start, start + size)})
    assert least >= max((size for _, size in pieces), default=0)


def test_disjoint_views_of_a_flat_buffer_add_up():
    assert least_bytes([Access(1, 10 * i, 10 * i + 10, 10, writes=False) for i in range(7)]) == 70


def trained(model: nn.Module, *inputs: torch.Tensor):
    """A steady step of training with AdamW."""
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(*inputs).sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    step()
    return programmed(step)


def test_parameters_and_state_move_once_each_way_whatever_one_does():
    """p, m and v read and written are 24 bytes a parameter; gradients and activations could stay on the chip."""
    layer, x = nn.Linear(64, 256, bias=False), torch.ones(8, 64)
    program = trained(layer, x)
    counters = 2 * 4
    assert compulsory_floor(program, CPU).bytes == 24 * 64 * 256 + 4 * x.numel() + counters


def test_what_fits_into_the_cache_need_not_move():
    tape = Tape()
    weight = tape.tensor(8 * MiB // 4)
    tape.pointwise(weight)
    assert compulsory_floor(tape.program, replace(CPU, cache_bytes=8 * MiB)).seconds == 0
    half = compulsory_floor(tape.program, replace(CPU, cache_bytes=4 * MiB))
    assert half.seconds == pytest.approx(4 * MiB / 11e9)
    assert compulsory_floor(tape.program, replace(CPU, cache_bytes=None)).bytes_s is None


def test_a_datasheet_is_the_bound_where_there_is_one_unless_more_was_measured():
    tape = Tape()
    tape.product(tape.tensor(512, 512, dtype="bf16"), tape.tensor(512, 512, dtype="bf16"))
    sheet = datasheets.find("NVIDIA H200")
    flops = 2 * 512**3
    assert compulsory_floor(tape.program, CPU).compute_s == pytest.approx(flops / 220e9)
    promised = sheet.matmul_flops_per_s["bf16"]
    assert compulsory_floor(tape.program, CPU, sheet).compute_s == pytest.approx(flops / promised)
    more = replace(CPU, matmul_flops_per_s={"bf16": 2 * promised})
    assert compulsory_floor(tape.program, more, sheet).compute_s == pytest.approx(flops / promised / 2)


def test_what_a_machine_emulates_it_could_compute_in_a_wider_type():
    tape = Tape()
    tape.product(tape.tensor(512, 512, dtype="bf16"), tape.tensor(512, 512, dtype="bf16"))
    emulating = replace(CPU, matmul_flops_per_s={"fp32": 100e9, "bf16": 5e9})
    assert compulsory_floor(tape.program, emulating).compute_s == pytest.approx(2 * 512**3 / 110e9)


def test_a_mode_without_a_ceiling_leaves_the_bytes_as_the_bound():
    tape = Tape()
    tape.product(tape.tensor(4096, 4096, dtype="fp16"), tape.tensor(4096, 4096, dtype="fp16"))
    unknown = compulsory_floor(tape.program, CPU)
    assert unknown.compute_s is None
    assert unknown.seconds == unknown.bytes_s == pytest.approx((64 - 16) * MiB / 11e9)


@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "share"), [(3, 1, 1, 4), (3, 1, 0, 4), (3, 2, 1, 1), (1, 1, 0, 1), (5, 1, 2, 1)]
)
def test_winograd_saves_three_quarters_of_a_3x3_convolution_of_stride_1(kernel, stride, padding, share):
    layer = nn.Conv2d(4, 8, kernel, stride, padding)
    image = torch.ones(2, 4, 16, 16, requires_grad=True)
    program = programmed(lambda: layer(image).sum().backward())
    direct = sum(op.work.matrix_flops for op in program.ops)
    assert needed_flops(program.ops) == {"fp32": direct / share}


def test_a_flash_backward_needs_two_forwards():
    q, k, v = (torch.ones(2, 4, 16, 8, requires_grad=True) for _ in range(3))
    attend = nn.functional.scaled_dot_product_attention
    forward = programmed(lambda: attend(q.detach(), k.detach(), v.detach()))
    both = programmed(lambda: attend(q, k, v).sum().backward())
    assert needed_flops(both.ops)["fp32"] == pytest.approx(3 * needed_flops(forward.ops)["fp32"])


def test_what_checkpointing_runs_again_need_not_be_run():
    tape = Tape()
    tape.product(tape.tensor(8, 8), tape.tensor(8, 8), phase=Phase.BACKWARD)
    tape.ops.append(replace(tape.ops[0], recomputed=True))
    assert needed_flops(tape.ops) == {"fp32": 2 * 8**3}


def test_bytes_read_by_many_ops_must_move_once():
    tape = Tape()
    x = tape.tensor(16 * MiB)
    tape.op("sum", OpClass.NORMALIZATION, [x], [tape.tensor()], work=moving([x], []))
    tape.op("amax", OpClass.NORMALIZATION, [x], [tape.tensor()], work=moving([x], []))
    assert compulsory_floor(tape.program, CPU).bytes == 64 * MiB
