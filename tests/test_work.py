from functools import reduce
from operator import add

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.work.work import Work, total

# Whole numbers: sums of floats depend on their order, and counts are whole.
NUMBER = st.integers(0, 10**12)
COUNTS = st.dictionaries(st.sampled_from(["fp32", "bf16", "tf32"]), NUMBER)
FUNCTIONS = st.dictionaries(st.sampled_from(["fma", "exp", "cos"]), NUMBER)
WORKS = st.builds(
    Work,
    matrix=COUNTS,
    flops_dense=NUMBER,
    vector_flops=NUMBER,
    vector=st.dictionaries(st.sampled_from(["fp32", "fp64"]), FUNCTIONS),
    bytes_read=NUMBER,
    bytes_written=NUMBER,
)


@given(WORKS, WORKS)
def test_work_adds_in_any_order(one, other):
    assert one + other == other + one


@given(WORKS, WORKS, WORKS)
def test_work_adds_in_any_grouping(one, other, third):
    assert (one + other) + third == one + (other + third)


@given(WORKS)
def test_no_work_changes_nothing(work):
    assert work + Work() == Work() + work == work


@given(st.lists(WORKS, max_size=5))
def test_a_total_is_the_sum_of_its_parts(works):
    assert total(works) == reduce(add, works, Work())


@given(WORKS, WORKS)
def test_every_quantity_of_a_sum_is_the_sum_of_the_quantities(one, other):
    both = one + other
    for quantity in ("matrix_flops", "vector_flops", "flops", "flops_dense", "bytes_read", "bytes_written", "bytes"):
        assert getattr(both, quantity) == getattr(one, quantity) + getattr(other, quantity)


@given(WORKS)
def test_flops_are_matrix_and_vector_and_bytes_are_read_and_written(work):
    assert work.flops == sum(work.matrix.values()) + work.vector_flops
    assert work.bytes == work.bytes_read + work.bytes_written


def test_intensity_is_flops_per_byte():
    assert Work(matrix={"bf16": 60, "fp32": 30}, vector_flops=10, bytes_read=15, bytes_written=5).intensity == 5


def test_intensity_is_unknown_where_no_byte_moves():
    assert Work(vector_flops=3).intensity is None


def test_flops_dense_are_another_convention_and_not_part_of_flops():
    assert Work(matrix={"bf16": 50}, flops_dense=100).flops == 50


def test_a_cosine_costs_what_the_machine_says_and_counts_as_one_flop():
    work = Work(vector_flops=7, vector={"fp32": {"cos": 4, "fma": 3}, "fp64": {"exp": 2}})
    assert work.vector_cost({"cos": 20, "exp": 8}) == {"fp32": 4 * 20 + 3, "fp64": 16}
    assert work.flops == 7


def test_a_function_that_the_machine_does_not_list_costs_one_slot_the_least_it_can():
    assert Work(vector={"fp32": {"lgamma": 9}}).vector_cost({}) == {"fp32": 9}


@given(WORKS, WORKS, st.dictionaries(st.sampled_from(["fma", "exp", "cos"]), st.integers(1, 50)))
def test_vector_cost_adds_too(one, other, costs):
    whole, parts = (one + other).vector_cost(costs), (one.vector_cost(costs), other.vector_cost(costs))
    assert whole == {kind: sum(part.get(kind, 0) for part in parts) for kind in whole}


def test_work_is_frozen():
    with pytest.raises(AttributeError):
        Work().bytes_read = 1
