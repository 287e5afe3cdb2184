"""Lineage: made-up compilations whose truth is known, and laws that any compilation keeps."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.work.lineage import aligned, as_written, traced
from gobrrr.work.op import CountedBy, Op, OpClass, Phase
from gobrrr.work.registry import canonical
from gobrrr.work.work import total
from test_residency import Tape


def layers(number: int = 3) -> Tape:
    """Each: a product, a bias, an activation, a norm; as they were written, with modules and lines."""
    tape = Tape()
    x = tape.tensor(64, 64)
    for _ in range(number):
        x = tape.product(x, tape.tensor(64, 64))
        x = tape.pointwise(tape.pointwise(x, name="add"), name="gelu")
        x = tape.op("native_layer_norm", OpClass.NORMALIZATION, [x], [tape.tensor(64, 64)])
    return tape


def placed(tape: Tape) -> list[Op]:
    return [
        replace(op, module=f"Net.layer.{place // 4}.{('out', 'out', 'act', 'norm')[place % 4]}", source=f"a.py:{place}")
        for place, op in enumerate(tape.ops)
    ]


def compiled(tape: Tape, name: str = "triton_per_fused_add_gelu_native_layer_norm_{}") -> list[Op]:
    """The products stay; what stands between two is one kernel."""
    kept = []
    for start in range(0, len(tape.ops), 4):
        product, add, _, norm = tape.ops[start : start + 4]
        kept.append(replace(product, module="", source=None))
        made = replace(norm, name=name.format(start), inputs=add.inputs, work=None, cls=OpClass.OTHER)
        kept.append(replace(made, counted_by=CountedBy.UNKNOWN))
    return kept


def test_what_was_fused_between_two_products_is_found():
    tape = layers()
    ran = traced(placed(tape), compiled(tape))
    assert ran.fused_from == ((0,), (1, 2, 3), (4,), (5, 6, 7), (8,), (9, 10, 11))


def test_a_fused_kernel_has_its_bytes_from_its_operands_and_its_arithmetic_from_its_ops():
    tape = layers(1)
    kernel = traced(placed(tape), compiled(tape)).ops[1]
    assert kernel.work.bytes == 2 * 64 * 64 * 4
    assert kernel.work.vector == total(op.work for op in tape.ops[1:]).vector
    assert (kernel.cls, kernel.counted_by) == (OpClass.NORMALIZATION, CountedBy.FORMULA)
    assert kernel.module == "Net.layer.0"


def test_a_product_that_remained_takes_its_module_and_line_from_the_program():
    tape = layers()
    product = traced(placed(tape), compiled(tape)).ops[2]
    assert (product.module, product.source, product.work) == ("Net.layer.1.out", "a.py:4", tape.ops[4].work)


def test_a_bias_that_a_compiler_took_out_of_a_product_does_not_hide_it():
    tape = layers(2)
    program = [replace(op, name="aten::addmm") if op.name == "aten::mm" else op for op in placed(tape)]
    assert traced(program, compiled(tape)).fused_from[::2] == ((0,), (4,))


def test_a_product_of_another_size_is_another_product():
    tape = layers(1)
    other = Tape()
    other.product(other.tensor(64, 64), other.tensor(64, 640))
    assert traced(placed(tape), other.ops).fused_from == ((),)


def test_what_a_compiler_moved_is_found_too():
    tape = layers()
    last, *others = reversed(compiled(tape))
    moved = [last, *reversed(others)]
    assert sorted(index for own in traced(placed(tape), moved).fused_from for index in own) == list(range(12))


def test_a_name_that_is_part_of_a_longer_one_is_not_there():
    tape = Tape()
    x = tape.tensor(8)
    for name in ("_softmax", "native_layer_norm"):
        tape.pointwise(x, name=name)
    kernel = replace(tape.ops[0], name="triton_per_fused__softmax_backward_data_native_layer_norm_backward_0")
    assert traced(tape.ops, [kernel]).fused_from == ((0, 1),)
    tape.pointwise(x, name="_softmax_backward_data")
    tape.pointwise(x, name="native_layer_norm_backward")
    assert traced(tape.ops, [kernel]).fused_from == ((2, 3),)


def test_ops_are_looked_for_in_their_own_phase_first():
    tape = layers(1)
    product, kernel = compiled(tape)
    ran = traced(placed(tape), [replace(kernel, phase=Phase.BACKWARD), product, kernel])
    assert ran.fused_from == ((), (0,), (1, 2, 3))


def test_a_step_that_was_compiled_as_a_whole_has_its_phases_from_the_program():
    tape = layers(1)
    program = [replace(op, phase=Phase.OPTIMIZER) for op in placed(tape)]
    _, kernel = traced(program, compiled(tape)).ops
    assert kernel.phase is Phase.OPTIMIZER


def test_what_has_another_name_between_two_ops_of_a_kernel_is_done_by_it_too():
    tape = layers(1)
    program = [replace(op, name="aten::other") if op.name == "aten::gelu" else op for op in placed(tape)]
    assert traced(program, compiled(tape)).fused_from == ((0,), (1, 2, 3))


def test_a_products_op_of_a_compilers_own_does_what_the_programs_does():
    tape = layers(1)
    product = replace(compiled(tape)[0], name="mkl::_mkl_linear", work=None, cls=OpClass.OTHER)
    (made,) = traced(placed(tape)[:1], [product]).ops
    assert (made.cls, made.counted_by, made.work) == (OpClass.CONTRACTION, CountedBy.DEFAULT, tape.ops[0].work)


def test_of_an_operand_larger_than_all_that_its_ops_touch_only_as_much_is_read():
    tape = Tape()
    x = tape.tensor(16)
    tape.pointwise(x, name="exp")
    whole = replace(tape.ops[0], name="triton_poi_fused_exp_0", inputs=(tape.tensor(4096),), work=None)
    (made,) = traced(tape.ops, [whole]).ops
    assert made.work.bytes == 2 * 16 * 4


def test_a_kernel_without_lineage_lies_where_its_neighbours_lie_and_moves_its_operands():
    tape = layers(1)
    stranger = replace(compiled(tape)[1], name="triton_poi_fused_mystery_9")
    kernel = traced(placed(tape), [compiled(tape)[0], stranger, compiled(tape)[1]]).ops[1]
    assert (kernel.module, kernel.source, kernel.counted_by) == ("Net.layer.0", None, CountedBy.DEFAULT)
    assert kernel.cls is OpClass.ELEMENTWISE
    assert kernel.work.bytes == 2 * 64 * 64 * 4


def test_rows_that_are_looked_up_are_all_that_is_read_of_a_table():
    tape = Tape()
    table, ids = tape.tensor(30000, 64), tape.tensor(16, dtype="int64")
    rows = tape.tensor(16, 64)
    tape.op("embedding", OpClass.INDEXING, [table, ids], [rows])
    looked_up = tape.ops[0]
    looked_up = replace(looked_up, work=replace(looked_up.work, bytes_read=2 * 16 * 64 * 4, bytes_written=16 * 64 * 4))
    kernel = replace(looked_up, name="triton_poi_fused_embedding_0", work=None)
    (made,) = traced([looked_up], [kernel]).ops
    assert made.work.bytes_read == 2 * 16 * 64 * 4 + 16 * 8


def attention(tape: Tape) -> None:
    q, k, v = (tape.tensor(8, 64, 32) for _ in range(3))
    tape.op("_scaled_dot_product_flash_attention", OpClass.CONTRACTION, [q, k, v], [tape.tensor(8, 64, 32)])


@pytest.mark.parametrize("heads", [1, 2])
def test_attention_that_a_compiler_wrote_out_is_all_of_its_products_and_what_is_between(heads):
    program, ran = Tape(), Tape()
    for _ in range(heads):
        attention(program)
        ran.op("bmm", OpClass.CONTRACTION, [ran.tensor(8, 64, 32)] * 2, [ran.tensor(8, 64, 64)])
        ran.pointwise(ran.tensor(8, 64, 64))
        ran.ops[-1] = replace(ran.ops[-1], name="triton_per_fused__safe_softmax_0")
        ran.op("bmm", OpClass.CONTRACTION, [ran.tensor(8, 64, 64)] * 2, [ran.tensor(8, 64, 32)])
    found = traced(program.ops, ran.ops)
    assert found.fused_from == tuple((head,) for head in range(heads) for _ in range(3))
    softmax = found.ops[1]
    assert (softmax.cls, softmax.work.matrix_flops) == (OpClass.NORMALIZATION, 0)


def test_without_a_compiler_each_op_does_itself():
    ops = layers().ops
    assert traced(ops, ops).fused_from == as_written(ops).fused_from


NAMES = st.sampled_from(["add", "mul", "relu", "exp"])


@given(st.lists(NAMES, max_size=30), st.data())
def test_the_way_never_goes_back_and_every_pair_has_a_name_in_common(names, data):
    tape = Tape()
    x = tape.tensor(4)
    for name in names:
        tape.pointwise(x, name=name)
    made = [
        replace(tape.ops[0], name="triton_poi_fused_" + "_".join([*sorted(data.draw(st.sets(NAMES, min_size=1))), "0"]))
        for _ in range(data.draw(st.integers(0, 6)) if names else 0)
    ]
    pairs = sorted(aligned(tape.ops, made))
    assert [kernel for _, kernel in pairs] == sorted(kernel for _, kernel in pairs)
    assert all(canonical(tape.ops[op].name) in made[kernel].name for op, kernel in pairs)


@given(st.lists(NAMES, min_size=1, max_size=40), st.lists(st.integers(1, 5), min_size=1, max_size=40))
def test_cutting_a_program_into_kernels_loses_no_op(names, lengths):
    """Whatever the cuts, each op finds a kernel: the true way is one of those that lose none."""
    tape = Tape()
    x = tape.tensor(4)
    for name in names:
        tape.pointwise(x, name=name)
    parts, rest = [], list(names)
    for length in lengths:
        parts.append(rest[:length])
        rest = rest[length:]
    made = [
        replace(tape.ops[0], name="triton_poi_fused_" + "_".join([*sorted(set(part)), "0"]))
        for part in [*parts, rest]
        if part
    ]
    assert len(aligned(tape.ops, made)) == len(names)
