"""Embeddings, gathers, scatters, copies and fills: the elements that are touched, and no others."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from counting import FLOATS, SIZES, call, few, formula_of, laid_out, launched, moved, only, touched_bytes, work_of
from gobrrr.work.op import OpClass

aten = torch.ops.aten
WIDE = 8
"""Bytes of an index."""


# **** embeddings ****


@few
@given(SIZES, SIZES, st.integers(1, 30), st.integers(1, 9), FLOATS)
def test_an_embedding_reads_at_most_the_touched_rows_and_never_more_than_the_table(batch, length, rows, width, dtype):
    table, ids = torch.ones(rows, width, dtype=dtype), torch.zeros(batch, length, dtype=torch.int64)
    op = only(functional.embedding, ids, table)
    assert op.cls is OpClass.INDEXING
    assert op.work.flops == 0
    touched = min(batch * length, rows) * width * dtype.itemsize
    assert moved(op.work) == (touched + WIDE * batch * length, batch * length * width * dtype.itemsize)


def test_positions_that_the_whole_batch_shares_touch_each_row_once():
    positions, table = torch.arange(6).expand(4, 6), torch.ones(100, 3)
    assert moved(work_of(functional.embedding, positions, table)) == (WIDE * 6 + 4 * 6 * 3, 4 * 4 * 6 * 3)


def test_its_backward_adds_a_row_per_index_and_writes_the_whole_table():
    table, ids = torch.ones(20, 3, requires_grad=True), torch.zeros(2, 5, dtype=torch.int64)
    out = functional.embedding(ids, table)
    (op,) = launched(torch.autograd.grad, out, table, torch.ones_like(out))
    assert op.work.flops == 2 * 5 * 3
    assert moved(op.work) == (4 * 2 * 5 * 3 + WIDE * 10, 4 * 20 * 3)


def test_a_bag_of_embeddings_writes_only_the_sums():
    table, ids, starts = torch.ones(20, 3), torch.zeros(10, dtype=torch.int64), torch.tensor([0, 4])
    work = work_of(functional.embedding_bag, ids, table, starts, mode="sum")
    assert work.flops == 10 * 3
    assert work.bytes_read == 4 * 10 * 3 + WIDE * (10 + 2)
    assert work.bytes_written < 4 * 10 * 3 + WIDE * (10 + 2 * 2 + 2)


# **** gather and scatter ****

TABLE = torch.ones(50, 4)
THREE = torch.tensor([1, 5, 7])


@pytest.mark.parametrize(
    ("pick", "picked", "indices"),
    [
        pytest.param(lambda: TABLE[THREE], 3 * 4, 3, id="rows by index"),
        pytest.param(lambda: TABLE[THREE, THREE - THREE], 3, 6, id="elements by two indices"),
        pytest.param(lambda: TABLE.index_select(0, THREE), 3 * 4, 3, id="index_select"),
        pytest.param(lambda: TABLE.gather(0, THREE[:, None]), 3, 3, id="gather"),
        pytest.param(lambda: TABLE.take(THREE), 3, 3, id="take"),
    ],
)
def test_a_gather_reads_indices_and_what_it_picks(pick, picked, indices):
    *_, op = launched(pick)
    assert op.cls is OpClass.INDEXING
    assert moved(op.work) == (4 * picked + WIDE * indices, 4 * picked)


def test_a_mask_is_read_in_full_and_picks_what_it_holds():
    mask = torch.arange(50) % 5 == 0
    work = work_of(torch.masked_select, TABLE, mask[:, None])
    assert moved(work) == (50 + 4 * 40, 4 * 40)


def test_a_gather_never_reads_more_than_there_is():
    many = torch.zeros(1000, dtype=torch.int64)
    assert work_of(torch.index_select, TABLE, 0, many).bytes_read == 4 * 200 + WIDE * 1000


NEW = torch.ones(3, 4)
ROWS = THREE[:, None].expand(3, 4)


@pytest.mark.parametrize(
    ("change", "source", "indices", "adds"),
    [
        pytest.param(lambda t: t.index_put_((THREE,), NEW), 12, 3, False, id="index_put"),
        pytest.param(lambda t: t.index_put_((THREE,), NEW, accumulate=True), 12, 3, True, id="index_put adding"),
        pytest.param(lambda t: t.scatter_(0, ROWS, NEW), 12, 3, False, id="scatter"),
        pytest.param(lambda t: t.scatter_(0, ROWS, 1.0), 0, 3, False, id="scatter of a number"),
        pytest.param(lambda t: t.scatter_add_(0, ROWS, NEW), 12, 3, True, id="scatter_add"),
        pytest.param(lambda t: t.scatter_reduce_(0, ROWS, NEW, "sum"), 12, 3, True, id="scatter_reduce"),
        pytest.param(lambda t: t.index_add_(0, THREE, NEW), 12, 3, True, id="index_add"),
        pytest.param(lambda t: t.index_copy_(0, THREE, NEW), 12, 3, False, id="index_copy"),
        pytest.param(lambda t: t.index_fill_(0, THREE, 0.0), 0, 3, False, id="index_fill"),
        pytest.param(lambda t: t.put_(ROWS.contiguous(), NEW), 12, 12, False, id="put"),
        pytest.param(lambda t: t.put_(ROWS.contiguous(), NEW, accumulate=True), 12, 12, True, id="put adding"),
    ],
)
def test_a_scatter_in_place_writes_what_it_touches_and_reads_it_first_if_it_adds(change, source, indices, adds):
    *_, op = launched(change, torch.ones(50, 4))
    assert op.cls is OpClass.INDEXING
    assert op.work.flops == 12 * adds
    assert moved(op.work) == (4 * (source + 12 * adds) + WIDE * indices, 4 * 12)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda t: t.index_put((THREE,), NEW), id="index_put"),
        pytest.param(lambda t: t.index_add(0, THREE, NEW), id="index_add"),
        pytest.param(lambda t: t.scatter(0, ROWS, NEW), id="scatter"),
    ],
)
def test_a_scatter_into_a_new_tensor_copies_the_old_one_as_well(change):
    *_, op = launched(change, TABLE)
    assert moved(op.work) == (4 * (200 + 12) + WIDE * 3, 4 * 200)


def test_index_tensors_are_broadcast_together_and_other_dimensions_taken_whole():
    target = torch.ones(5, 6, 7)
    rows, columns = torch.tensor([[0], [1]]), torch.tensor([0, 2, 3])
    work = work_of(aten.index_put_, target, [rows, None, columns], torch.ones(()))
    assert work.bytes_written == 4 * 2 * 3 * 6


def test_a_scatter_never_touches_more_than_there_is():
    target, many = torch.ones(10), torch.zeros(1000, dtype=torch.int64)
    work = work_of(target.index_put_, (many,), torch.ones(1000), accumulate=True)
    assert moved(work) == (4 * (1000 + 10) + WIDE * 1000, 4 * 10)


def test_a_search_in_a_sorted_row_compares_what_it_looks_for():
    row, sought = torch.arange(1000.0), torch.ones(7)
    work = work_of(torch.searchsorted, row, sought)
    assert work.flops == 7
    assert work.bytes_written == WIDE * 7


def test_positions_of_what_is_not_zero_are_found_in_one_pass():
    work = work_of(torch.nonzero, torch.eye(4))
    assert moved(work) == (4 * 16, WIDE * 4 * 2)


# **** copies, casts and fills ****


@few
@given(st.data(), SIZES, SIZES, FLOATS, FLOATS)
def test_a_copy_or_cast_reads_distinct_elements_and_writes_its_target(data, rows, columns, dtype, other):
    x = data.draw(laid_out((rows, columns), dtype))
    target = torch.empty(rows, columns, dtype=other)
    work = work_of(target.copy_, x)
    assert work.flops == 0
    assert moved(work) == (touched_bytes(x), touched_bytes(target))
    if dtype != other:
        assert moved(work_of(x.to, other)) == (touched_bytes(x), touched_bytes(x.to(other)))


@few
@given(st.lists(SIZES, min_size=1, max_size=4), SIZES)
def test_a_concatenation_reads_its_parts_and_writes_them_together(sizes, width):
    parts = [torch.ones(size, width) for size in sizes]
    op = only(torch.cat, parts)
    assert op.cls is OpClass.MOVEMENT
    assert moved(op.work) == (4 * sum(sizes) * width, 4 * sum(sizes) * width)


X = torch.ones(3, 5)


@pytest.mark.parametrize(
    ("move", "read", "written"),
    [
        pytest.param(X.clone, 60, 60, id="clone"),
        pytest.param(X.T.contiguous, 60, 60, id="contiguous of a transpose"),
        pytest.param(lambda: X[0].expand(9, 5).contiguous(), 20, 180, id="contiguous of an expansion"),
        pytest.param(lambda: X.repeat(2, 1), 60, 120, id="repeat"),
        pytest.param(lambda: torch.stack([X, X]), 60, 120, id="stack of one thing twice"),
        pytest.param(lambda: functional.pad(X, (1, 1)), 60, 84, id="pad"),
        pytest.param(lambda: X.flip(0), 60, 60, id="flip"),
        pytest.param(X.bfloat16, 60, 30, id="cast"),
        pytest.param(lambda: torch.zeros(3, 5), 0, 60, id="zeros"),
        pytest.param(lambda: torch.full_like(X, 2.0), 0, 60, id="full_like"),
        pytest.param(lambda: torch.arange(15), 0, 120, id="arange"),
        pytest.param(lambda: X.clone().zero_(), 0, 60, id="zero_"),
        pytest.param(lambda: X.clone().fill_(3.0), 0, 60, id="fill_"),
        pytest.param(lambda: torch._foreach_zero_([torch.empty(3), torch.empty(4)]), 0, 28, id="zeroing of many"),
        pytest.param(lambda: torch.slice_scatter(X, X[:1].clone(), end=1), 60, 60, id="slice_scatter"),
    ],
)
def test_bytes_of_movements_written_out(move, read, written):
    *_, op = launched(move)
    assert op.cls is OpClass.MOVEMENT
    assert op.work.flops == 0
    assert moved(op.work) == (read, written)


def test_a_slice_goes_back_into_zeros_of_the_whole():
    x = torch.ones(10, 4, requires_grad=True)
    part = x[:3]
    (op,) = launched(torch.autograd.grad, part, x, torch.ones(3, 4))
    assert moved(op.work) == (4 * 12, 4 * 40)


@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.view(15),
        lambda x: x.T,
        lambda x: x[1:, ::2],
        lambda x: x.expand(2, 3, 5),
        lambda x: x.unbind(0),
        lambda x: x.split(1),
        lambda x: x.detach(),
        lambda x: x.unsqueeze_(0),
        lambda x: x.t_(),
        lambda x: x.contiguous(),
        lambda x: x.to(torch.float32),
        torch.empty_like,
        lambda x: x.new_empty(7),
        lambda x: torch.unsafe_split(x, 1),
        torch.positive,
        torch.real,
    ],
    ids="view T slice expand unbind split detach unsqueeze_ t_ contiguous to empty_like new_empty unsafe_split "
    "positive real".split(),
)
@pytest.mark.parametrize("mode", [torch.enable_grad, torch.no_grad, torch.inference_mode])
def test_views_and_allocations_launch_nothing(view, mode):
    x = torch.ones(3, 5)
    with mode():
        assert launched(view, x) == []


def test_an_op_on_nothing_launches_nothing():
    assert launched(torch.neg, torch.ones(0, 5)) == []


def test_a_number_from_a_tensor_is_read_and_a_number_from_python_is_not():
    assert work_of(torch.ones(3).fill_, torch.ones(())).bytes_read == 4
    assert formula_of(call(aten.fill_.Scalar, X, 1.0, outputs=[X])).bytes_read == 0
