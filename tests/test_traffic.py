"""Bytes are counted by address: what the shapes and strides of a view say, against a list of all it touches."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from counting import addresses, ref, touched_bytes
from gobrrr.dtypes import ITEM_BYTES
from gobrrr.work.op import TensorRef
from gobrrr.work.traffic import distinct_bytes

DTYPES = st.sampled_from([torch.float64, torch.float32, torch.bfloat16, torch.uint8, torch.complex64, torch.bool])
SIZE = st.integers(1, 6)


def forward_slices(size: int) -> st.SearchStrategy[slice]:
    """Of nothing, all of it: there hypothesis draws steps that no stride can hold."""
    if size == 0:
        return st.just(slice(None))
    return st.slices(size).filter(lambda cut: cut.step is None or cut.step > 0)


@st.composite
def ordinary_views(draw) -> torch.Tensor:
    """What slicing, transposing and expanding make of a buffer: nothing overlaps but what repeats outright."""
    shape = draw(st.lists(st.integers(0, 6), min_size=1, max_size=3))
    sliced = torch.empty(shape, dtype=draw(DTYPES))[tuple(draw(forward_slices(size)) for size in shape)]
    turned = sliced.permute(draw(st.permutations(range(sliced.dim()))))
    place = draw(st.integers(0, turned.dim()))
    repeated = turned.unsqueeze(place)
    return repeated.expand([draw(SIZE) if dim == place else size for dim, size in enumerate(repeated.shape)])


@st.composite
def windows(draw) -> torch.Tensor:
    """Windows of a row: they overlap without a gap, lie side by side, or stand apart."""
    size, step, count = draw(SIZE), draw(SIZE), draw(SIZE)
    start = draw(st.integers(0, 3))
    row = torch.empty(start + (count - 1) * step + size, dtype=draw(DTYPES))[start:]
    return row.unfold(0, size, step)


@st.composite
def any_views(draw) -> TensorRef:
    """Any shape and stride at all, overlapping and full of gaps at once."""
    dims = draw(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 9)), max_size=4))
    dtype = draw(st.sampled_from(["fp64", "fp32", "bf16", "int8"]))
    shape, stride = zip(*dims, strict=True) if dims else ((), ())
    return TensorRef(draw(st.integers(0, 2)), draw(st.integers(0, 9)), shape, stride, dtype)


def listed(view: TensorRef) -> int:
    """Distinct elements of the view."""
    return len(addresses(0, view, 1))


def listed_bytes(views: list[TensorRef]) -> int:
    apart = 1 << 20
    return len(set().union(*(addresses(view.storage * apart, view, int(view.item_bytes)) for view in views)))


@given(ordinary_views() | windows())
def test_distinct_elements_of_slices_transposes_expansions_and_windows_are_exact(tensor):
    assert ref(tensor).unique == listed(ref(tensor))


@given(ordinary_views() | windows())
def test_bytes_of_one_view_are_its_distinct_elements_times_their_width(tensor):
    assert ref(tensor).unique_bytes == distinct_bytes([ref(tensor)]) == touched_bytes(tensor)


@given(any_views())
def test_distinct_elements_are_never_fewer_than_touched_nor_more_than_spanned(view):
    assert listed(view) <= view.unique <= min(view.numel, view.span)


@given(any_views())
def test_the_span_reaches_from_the_first_touched_element_to_the_last(view):
    touched = addresses(0, view, 1)
    assert view.span == (max(touched) - min(touched) + 1 if touched else 0)


@given(st.lists(any_views(), min_size=1, max_size=4))
def test_bytes_of_several_views_are_never_below_the_truth_nor_above_their_sum(views):
    assert listed_bytes(views) <= distinct_bytes(views) <= sum(view.unique_bytes for view in views)


@given(st.lists(any_views(), min_size=1, max_size=4))
def test_bytes_of_several_views_never_exceed_the_stretch_of_storage_they_lie_in(views):
    stretches = 0
    for storage in {view.storage for view in views}:
        touched = set().union(*(addresses(0, v, int(v.item_bytes)) for v in views if v.storage == storage))
        stretches += max(touched) - min(touched) + 1 if touched else 0
    assert distinct_bytes(views) <= stretches


@given(st.lists(any_views(), max_size=4), st.randoms())
def test_neither_order_nor_repetition_of_views_matters(views, random):
    again = [*views, *views]
    random.shuffle(again)
    assert distinct_bytes(again) == distinct_bytes(views)


@given(ordinary_views(), ordinary_views())
def test_buffers_apart_add(one, other):
    assert (
        distinct_bytes([ref(one), ref(other)]) == touched_bytes(one, other) == touched_bytes(one) + touched_bytes(other)
    )


@given(any_views())
def test_a_storage_that_nobody_knows_is_shared_with_nothing(view):
    unknown = view._replace(storage=None)
    assert distinct_bytes([unknown, unknown]) == 2 * unknown.unique_bytes


SQUARE = torch.empty(4, 4)
BUFFER = torch.empty(24)


@pytest.mark.parametrize(
    ("views", "elements"),
    [
        pytest.param((SQUARE, SQUARE), 16, id="x + x"),
        pytest.param((SQUARE, SQUARE.T), 16, id="x + x.T"),
        pytest.param((SQUARE, SQUARE[1], SQUARE[:, 2]), 16, id="x with its own row and column"),
        pytest.param((BUFFER[:12], BUFFER[12:]), 24, id="the halves of a buffer"),
        pytest.param((BUFFER[::2], BUFFER[1::2]), 24, id="even and odd"),
        pytest.param((BUFFER[:16], BUFFER[8:]), 24, id="slices that overlap"),
        pytest.param((BUFFER[:4], BUFFER[20:]), 8, id="slices with a gap between"),
        pytest.param((SQUARE[0].expand(9, 4), SQUARE[0]), 4, id="a row and its expansion"),
        pytest.param((BUFFER[:0], BUFFER[20:], BUFFER[20:].clone()), 8, id="an empty view, a slice and its copy"),
        pytest.param((BUFFER[:8], BUFFER[4:12], BUFFER[24:]), 12, id="overlapping slices and an empty view"),
        pytest.param((BUFFER, BUFFER.view(torch.uint8)[:8], BUFFER.view(torch.float64)), 24, id="other types of it"),
    ],
)
def test_views_of_one_buffer_are_counted_together(views, elements):
    assert distinct_bytes(map(ref, views)) == 4 * elements == touched_bytes(*views)


def test_overlapping_slices_with_a_gap_elsewhere_are_an_upper_bound():
    """The documented limit: the three show 16 elements, and 20 are counted."""
    views = (BUFFER[:8], BUFFER[4:12], BUFFER[20:])
    assert touched_bytes(*views) == 4 * 16
    assert distinct_bytes(map(ref, views)) == 4 * 20


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_a_byte_count_is_the_width_of_the_type_times_the_elements(dtype):
    assert TensorRef(0, 3, (2, 5), (5, 1), dtype).nbytes == 10 * ITEM_BYTES[dtype]


def test_a_type_of_unknown_width_has_no_bytes_rather_than_one_each():
    with pytest.raises(KeyError):
        distinct_bytes([TensorRef(0, 0, (3,), (1,), "opaque")])
