"""Predicted kernels obey the datasheet they are predicted from, and the laws that any machine obeys."""

from dataclasses import replace
from math import prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.diagnose.residency import Traffic
from gobrrr.errors import UsageError
from gobrrr.machine import datasheets
from gobrrr.predict.accelerator import Accelerator, from_datasheet, with_power
from gobrrr.predict.attention import Attention, attention, decode, prefill
from gobrrr.predict.conv import Convolution, convolution
from gobrrr.predict.estimate import memory_time, overlapped, rotating
from gobrrr.predict.kernels import Call, _stream
from gobrrr.predict.product import Product, product, streamed
from gobrrr.predict.stream import Stream, stream
from gobrrr.work.op import OpClass, TensorRef

CARDS = {sheet.id: from_datasheet(sheet) for sheet in datasheets.all_sheets()}
H100, A100, V100, T4 = (CARDS[name] for name in ("h100-sxm", "a100-sxm4-80gb", "v100-pcie", "t4"))

sizes = st.integers(1, 20_000)
cards = st.sampled_from([H100, A100, CARDS["mi300x"], CARDS["b200-sxm"], CARDS["l4"]])
any_card = st.sampled_from(list(CARDS.values()))


def seconds_of(shape: Product, card: Accelerator) -> float:
    bytes_ = 2 * shape.batch * (shape.m * shape.k + shape.k * shape.n + shape.m * shape.n)
    return product(shape, memory_time(Traffic(dram_read=bytes_), card, streamed(card)), card).seconds


@given(sizes, sizes, sizes, any_card, st.sampled_from(["fp32", "tf32", "bf16", "fp16"]), st.booleans())
def test_no_product_is_faster_than_the_datasheet_allows(m, n, k, card, mode, quiet):
    """Whatever its operands hold, and on vector units where there is no matrix unit for it."""
    shape = Product(m, n, k, mode=mode, quiet=quiet)
    bytes_ = 2 * (m * k + k * n + m * n)
    seconds = seconds_of(shape, card)
    assert seconds >= shape.flops / card.product_flops_per_s(mode) * (1 - 1e-9)
    assert seconds >= bytes_ / card.dram_bytes_per_s


def test_operands_that_draw_little_power_run_at_a_higher_share_of_the_sheet():
    """0.72 of an H100's with random data, 0.82 with uninitialised weights."""
    shape = Product(16384, 16384, 16384, quiet=True)
    assert shape.flops / seconds_of(shape, H100) / H100.matmul_flops_per_s["bf16"] == pytest.approx(0.82, abs=0.03)


@pytest.mark.parametrize(("card", "mode", "rate"), [("v100-sxm2", "fp64", 7.8e12), ("tpu-v4", "fp32", 4.3e12)])
def test_what_no_matrix_unit_multiplies_runs_on_vector_units(card, mode, rate):
    assert CARDS[card].product_flops_per_s(mode) == pytest.approx(rate, rel=0.01)


def test_what_a_card_cannot_multiply_is_said():
    with pytest.raises(UsageError, match="m1-max-32 multiplies nothing in fp64"):
        seconds_of(Product(64, 64, 64, mode="fp64"), CARDS["m1-max-32"])


@given(sizes, sizes, sizes, any_card)
def test_a_product_of_twice_the_size_never_takes_less(m, n, k, card):
    once = seconds_of(Product(m, n, k), card)
    for larger in (Product(2 * m, n, k), Product(m, 2 * n, k)):
        assert seconds_of(larger, card) >= once * (1 - 1e-9)


@given(sizes, sizes, sizes, cards)
def test_a_product_of_twice_the_depth_never_takes_less(m, n, k, card):
    """Not so where a multiprocessor is slow: a P4 takes longer for the 384 of one part than for 768 in three of 256."""
    assert seconds_of(Product(m, n, 2 * k), card) >= seconds_of(Product(m, n, k), card) * (1 - 1e-9)


@pytest.mark.parametrize(("card", "attained"), [(A100, 0.79), (H100, 0.745)])
def test_large_products_attain_what_is_measured_of_them(card, attained):
    """0.79 of the sheet on A100 and 0.72 on H100, whose power limit holds it there."""
    shape = Product(16384, 16384, 16384)
    assert shape.flops / seconds_of(shape, card) / card.matmul_flops_per_s["bf16"] == pytest.approx(attained, abs=0.03)


def test_a_lower_power_limit_slows_large_products_only():
    weak = with_power(H100, 350)
    assert seconds_of(Product(8192, 8192, 8192), weak) > 1.8 * seconds_of(Product(8192, 8192, 8192), H100)
    assert seconds_of(Product(1, 8192, 8192), weak) == seconds_of(Product(1, 8192, 8192), H100)


def test_odd_rows_cost_several_times_as_much():
    """GPT-2's vocabulary of 50257: the head's products took 2.5 times as long until padded."""
    aligned, odd = Product(8192, 50304, 768), Product(8192, 50257, 768, alignment=1)
    assert 2 < seconds_of(odd, H100) / seconds_of(aligned, H100) < 8


def test_a_card_without_the_mode_computes_in_a_wider_one():
    """bf16 on a V100 runs, on vector units; an unknown mode is never a fast one."""
    assert V100.matrix_flops_per_s("bf16") == V100.matmul_flops_per_s["fp32"]
    assert V100.matrix_flops_per_s("int4") is None


def test_few_tiles_split_k_and_stay_near_the_memory():
    """One row against 8192 by 8192 weights reads 134 MB: at least 60 % of the bandwidth, as measured."""
    attained = 2 * 8192 * 8192 / seconds_of(Product(1, 8192, 8192), A100) / A100.dram_bytes_per_s
    assert 0.6 < attained < 0.85


@given(st.floats(1e6, 1e11), any_card)
def test_no_stream_is_faster_than_memory(size, card):
    traffic = Traffic(dram_read=size, dram_written=size)
    for kind in Stream:
        assert stream(kind, traffic, card).seconds > traffic.bytes / card.dram_bytes_per_s


def test_a_large_pointwise_kernel_is_the_memorys():
    """Elementwise fp32 above 100 MB: 0.83 to 0.87 of an A100's bandwidth."""
    traffic = Traffic(dram_read=2e9, dram_written=1e9)
    attained = traffic.bytes / stream(Stream.POINTWISE, traffic, A100).seconds / A100.dram_bytes_per_s
    assert 0.82 < attained < 0.9


def test_cached_bytes_are_faster():
    cold, warm = Traffic(dram_read=1e7), Traffic(cache_read=1e7)
    assert stream(Stream.POINTWISE, warm, H100).seconds < stream(Stream.POINTWISE, cold, H100).seconds


@given(st.floats(0, 1e9))
def test_a_rotating_footprint_leaves_the_cache_gradually(footprint):
    traffic = rotating(3.0, 1.0, footprint, A100)
    assert traffic.bytes == pytest.approx(4)
    assert (traffic.dram == 0) == (footprint <= A100.cache_bytes / 2)


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1, 10))
def test_overlapping_lies_between_the_longer_and_the_sum(compute, memory, sharpness):
    together = overlapped(compute, memory, sharpness)
    assert max(compute, memory) <= together * 1.0001 + 1e-12
    assert together <= (compute + memory) * 1.0001 + 1e-12


@given(st.sampled_from([64, 128, 256]), st.integers(1, 8192), cards)
def test_attention_with_less_to_see_never_takes_longer(head, tokens, card):
    shape = Attention(2, 8, 8, tokens, tokens, head, causal=False)
    causal, window = replace(shape, causal=True), replace(shape, causal=True, window=64)
    times = [prefill(one, card).seconds for one in (window, causal, shape)]
    assert times == sorted(times)


def test_flash_attention_attains_what_is_measured_of_it():
    """Causal, D = 128, 16k tokens: 0.57 of an A100's sheet."""
    shape = Attention(2, 32, 32, 16384, 16384, 128)
    flops = 2 * shape.batch * shape.heads * shape.queries**2 * shape.head_dim
    assert flops / prefill(shape, A100).seconds / A100.matmul_flops_per_s["bf16"] == pytest.approx(0.57, abs=0.03)


@given(
    st.integers(1, 64),
    st.integers(0, 1 << 17),
    st.sampled_from([1, 4, 16]),
    st.sampled_from([32, 64, 80, 128, 256]),
    st.integers(1, 64),
    any_card,
)
def test_no_attention_is_faster_than_the_datasheet_allows(queries, before, group, head, batch, card):
    shape = Attention(batch, 16, 16 // group, queries, queries + before, head, causal=False)
    flops = 4 * shape.batch * shape.heads * shape.queries * shape.keys * shape.head_dim
    seconds = attention(shape, card).seconds
    assert seconds >= flops / card.product_flops_per_s("bf16")
    assert seconds >= shape.kv_bytes / card.dram_bytes_per_s


@given(
    st.integers(1, 64), st.integers(1, 1 << 14), st.sampled_from([1, 4, 16]), st.sampled_from([64, 128, 256]), any_card
)
def test_few_queries_never_take_less_for_twice_as_many_keys(queries, more, group, head, card):
    """Whether they are decoded or tiled: a token of a short prompt is not slower than that of a long one."""
    shape = Attention(4, 16, 16 // group, queries, queries + more, head)
    longer = replace(shape, keys=2 * shape.keys)
    assert attention(longer, card).seconds >= 0.95 * attention(shape, card).seconds


def test_decoding_streams_the_cache_of_keys_and_values():
    """Over a gigabyte of it at nearly 0.9 of the bandwidth; grouped heads read it once."""
    shape = Attention(256, 32, 8, 1, 8192, 128)
    seconds = decode(shape, H100).seconds
    assert 0.6 < shape.kv_bytes / seconds / H100.dram_bytes_per_s < 0.92
    assert attention(shape, H100).seconds == seconds
    assert decode(replace(shape, kv_heads=32), H100).seconds > 2 * seconds


def test_winograd_beats_the_direct_peak_and_is_not_used_elsewhere():
    """A 3x3 fp32 convolution of 256 channels reaches more than the vector units could without."""
    shape = Convolution(64, 256, 256, (28, 28), (28, 28), (3, 3))
    traffic = Traffic(dram_read=shape.input_bytes + shape.weight_bytes, dram_written=shape.output_bytes)
    direct = replace(shape, unit_stride=False)
    assert shape.flops / convolution(shape, traffic, V100).seconds > V100.matmul_flops_per_s["fp32"]
    assert shape.flops / convolution(direct, traffic, V100).seconds < V100.matmul_flops_per_s["fp32"]


def test_depthwise_convolutions_stream():
    shape = Convolution(64, 256, 256, (56, 56), (56, 56), (3, 3), groups=256, mode="fp16", item_bytes=2)
    traffic = Traffic(dram_read=shape.input_bytes, dram_written=shape.output_bytes)
    assert convolution(shape, traffic, A100).seconds > traffic.bytes / A100.dram_bytes_per_s


def test_channels_last_costs_depthwise_convolutions_copies_where_kernels_cannot_number_elements():
    def ratio(batch: int) -> float:
        first = Convolution(batch, 128, 128, (128, 128), (128, 128), (3, 3), groups=128, mode="fp16", item_bytes=2)
        traffic = Traffic(dram_read=first.input_bytes, dram_written=first.output_bytes)
        seconds = [convolution(one, traffic, A100).seconds for one in (first, replace(first, channels_last=True))]
        return seconds[1] / seconds[0]

    assert ratio(1023) == 1
    assert ratio(1024) > 3


@pytest.mark.parametrize(("width", "slower"), [(32, False), (24, True)])
def test_channels_last_costs_grouped_convolutions_where_libraries_have_no_kernel(width, slower):
    shape = Convolution(64, 8 * width, 8 * width, (28, 28), (28, 28), (3, 3), groups=8, mode="fp16", item_bytes=2)
    traffic = Traffic(dram_read=shape.input_bytes, dram_written=shape.output_bytes)
    first, last = (convolution(one, traffic, A100).seconds for one in (shape, replace(shape, channels_last=True)))
    assert (last > first) == slower


def test_elements_that_are_repeated_are_read_one_by_one_only_where_they_are_narrow():
    def way(dtype: str, *shapes: tuple[int, ...]) -> Stream:
        refs = [TensorRef(None, 0, shape, tuple(prod(shape[dim + 1 :]) for dim in range(2)), dtype) for shape in shapes]
        call = Call("mul", OpClass.ELEMENTWISE, tuple(refs), (refs[0],), (), 0.0, 0.0)
        return _stream(call)

    assert way("bf16", (64, 64), (64, 1)) is Stream.SINGLY
    assert way("fp32", (64, 64), (64, 1)) is Stream.POINTWISE
    assert way("bf16", (64, 64), (64, 64)) is Stream.POINTWISE


@pytest.mark.parametrize("card", CARDS.values(), ids=lambda card: card.name)
def test_every_datasheet_makes_an_accelerator_that_predicts(card):
    mode = next(mode for mode in ("bf16", "fp16", "fp32") if card.matrix_flops_per_s(mode))
    assert 0 < seconds_of(Product(1024, 1024, 1024, mode=mode), card) < 1
    assert 0 < stream(Stream.ROWWISE, Traffic(dram_read=1e8), card, rows=1000).seconds < 1
