"""What is said of results without torch is what torch says."""

import json

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from gobrrr.work import meta, results
from gobrrr.work.call import Call
from gobrrr.work.recorded import Recorded, recorded
from gobrrr.work.recorded_ops import _formula
from gobrrr.work.registry import rule_for
from traces import shared

TYPES = {"float": "fp32", "c10::BFloat16": "bf16", "c10::Half": "fp16", "double": "fp64", "long int": "int64"}
sizes = st.integers(1, 5)
shapes = st.lists(sizes, max_size=3)
types = st.sampled_from(list(TYPES))
numbers = st.sampled_from(["2", "1", "0.5", "-1."])


def op(name: str, dims: list, kinds: list[str], values: list[str]) -> Recorded:
    found = recorded(
        name, *(json.dumps(one).encode() if one else b"" for one in (dims, None, kinds, values)), assumed_type=None
    )
    assert found is not None
    return found


def agree(mine: Call, torchs: Call) -> None:
    """In all that matters: how results are laid out does not, for their bytes are the same."""
    assert [(ref.shape, ref.dtype) for ref in mine.outputs] == [(ref.shape, ref.dtype) for ref in torchs.outputs]
    rule = rule_for(mine.name)
    assert rule is not None
    assert _formula(rule, mine) == _formula(rule, torchs)


def checked(one: Recorded) -> Call | None:
    mine = results.call_of(one, tf32=False)
    if mine is not None:
        torchs = meta.call_of(one, tf32=False)
        assert torchs is not None
        agree(mine, torchs)
    return mine


UNARY = "abs neg exp log sqrt rsqrt reciprocal sigmoid tanh silu relu sin cos erf gelu zero_ relu_".split()
BINARY = (
    "add sub mul div maximum minimum eq ne lt le gt ge add_ mul_ tanh_backward sigmoid_backward silu_backward".split()
)


@given(st.sampled_from(UNARY), shapes, types)
def test_functions_of_one_operand(name, shape, kind):
    checked(op(f"aten::{name}", [shape], [kind], [""]))


@given(st.sampled_from(BINARY), shapes, shapes, types, types, st.data())
def test_functions_of_two_operands_broadcast_and_promote(name, shape, other, kind, another, data):
    alpha = [([], "Scalar", "1")] if name.startswith(("add", "sub")) else []
    second = data.draw(st.sampled_from([(other, another, ""), ([], "Scalar", data.draw(numbers))]))
    arguments = [(shape, kind, ""), second, *alpha]
    one = op(f"aten::{name}", *map(list, zip(*arguments, strict=True)))
    assume(meta.call_of(one, tf32=False) is not None)
    checked(one)


@given(st.sampled_from(["addcmul", "addcdiv", "where", "addcmul_"]), st.lists(shapes, min_size=3, max_size=3), types)
def test_functions_of_three_operands(name, three, kind):
    first = "bool" if name == "where" else kind
    value = [] if name == "where" else [([], "Scalar", "1")]
    arguments = [(three[0], first, ""), (three[1], kind, ""), (three[2], kind, ""), *value]
    one = op(f"aten::{name}", *map(list, zip(*arguments, strict=True)))
    assume(meta.call_of(one, tf32=False) is not None)
    checked(one)


@given(sizes, sizes, sizes, sizes, types)
def test_products(batch, rows, inner, columns, kind):
    left, right = [rows, inner], [inner, columns]
    assert checked(op("aten::mm", [left, right], [kind] * 2, ["", ""]))
    assert checked(op("aten::bmm", [[batch, *left], [batch, *right]], [kind] * 2, ["", ""]))
    biased = [[columns], left, right, [], []], [kind] * 3 + ["Scalar"] * 2, ["", "", "", "1", "1"]
    assert checked(op("aten::addmm", *biased))


@given(st.lists(sizes, min_size=1, max_size=3), st.data())
def test_rows(shape, data):
    dim = str(data.draw(st.integers(-len(shape), len(shape) - 1)))
    keep = str(data.draw(st.booleans()))
    row, ref = [shape[-1]], [*shape[:-1], 1]
    normed = ["float", "ScalarList", "float", "float", "Scalar"]
    unnormed, given_back = (
        [*["float"] * 2, "ScalarList", *["float"] * 4, ""],
        ["", "", str(row), *[""] * 4, "[True, True, True]"],
    )
    rows = (
        ("_softmax", [shape, [], []], ["float", "Scalar", "Scalar"], ["", dim, "False"]),
        ("_log_softmax_backward_data", [shape, shape, [], []], ["float"] * 2 + ["Scalar"] * 2, ["", "", dim, "6"]),
        ("native_layer_norm", [shape, [], row, row, []], normed, ["", str(row), "", "", "1e-05"]),
        ("native_layer_norm_backward", [shape, shape, [], ref, ref, row, row, []], unnormed, given_back),
        ("native_dropout", [shape, [], []], ["float", "Scalar", "Scalar"], ["", "0.1", "True"]),
        ("native_dropout_backward", [shape, shape, []], ["float", "bool", "Scalar"], ["", "", "1.1"]),
        ("sum", [shape, [], [], []], ["float", "ScalarList", "Scalar", ""], ["", f"[{dim}]", keep, ""]),
        ("mean", [shape, [], [], []], ["c10::Half", "ScalarList", "Scalar", ""], ["", f"[{dim}]", keep, ""]),
        ("index_select", [shape, [], [4]], ["float", "Scalar", "long int"], ["", dim, ""]),
        ("cat", [[shape, shape], []], ["TensorList", "Scalar"], ["", dim]),
    )  # fmt: skip
    for name, *arguments in rows:
        assert checked(op(f"aten::{name}", *arguments)) is not None or name == "cat", name


@given(sizes, sizes, sizes, st.sampled_from([1, 2]))
def test_losses_embeddings_and_ranges(rows, classes, width, reduction):
    logits, targets = [rows, classes], [rows]
    forward = [logits, targets, [], [], []], ["float", "long int", "", "Scalar", "Scalar"]
    assert checked(op("aten::nll_loss_forward", *forward, ["", "", "", str(reduction), "-100"]))
    backward = [[], *forward[0], []], ["float", *forward[1], "float"]
    assert checked(op("aten::nll_loss_backward", *backward, ["", "", "", "", str(reduction), "-100", ""]))
    looked_up = (
        [[rows, width], [rows], [], [], []],
        ["float", "long int"] + ["Scalar"] * 3,
        ["", "", str(classes), "-1", "False"],
    )
    assert checked(op("aten::embedding_dense_backward", *looked_up))
    assert checked(op("aten::arange", [[], [], [], [0]], ["Scalar"] * 3 + ["long int"], ["0", str(rows), "2", ""]))


@given(sizes, sizes, sizes, sizes)
def test_cudnn_attention(batch, heads, tokens, width):
    whole = [batch, heads, tokens, width]
    forward = op(
        "aten::_scaled_dot_product_cudnn_attention",
        [whole, whole, whole, [], [], [], [], [], []],
        ["c10::BFloat16"] * 3 + [""] + ["Scalar"] * 5,
        ["", "", "", "", "True", "0.", "True", "False", "0.125"],
    )
    assert checked(forward)
    backward = op(
        "aten::_scaled_dot_product_cudnn_attention_backward",
        [whole] * 5 + [[batch, heads, tokens, 1]] + [[]] * 10,
        ["c10::BFloat16"] * 5 + ["float", "long int", "long int", "", "", ""] + ["Scalar"] * 5,
        [""] * 11 + [str(tokens), str(tokens), "0.", "True", "0.125"],
    )
    assert checked(backward)


@pytest.mark.parametrize(
    "one",
    [
        op("aten::add", [[2, 2], [3, 3], []], ["float", "float", "Scalar"], ["", "", "1"]),
        op("aten::mm", [[2, 3], [4, 5]], ["float", "float"], ["", ""]),
        op("aten::div", [[4], [4]], ["long int", "long int"], ["", ""]),
        op("mylib::add", [[4], [4]], ["float", "float"], ["", ""]),
    ],
    ids=lambda one: one.name,
)
def test_what_is_not_certain_is_left_to_torch(one):
    assert results.call_of(one, tf32=False) is None


@pytest.mark.parametrize("name", ["gpt2_train_b8x1024_bf16", "public/h100_vit", "public/v100_resnet50_workers0"])
def test_on_real_traces_both_say_the_same(name, monkeypatch, tmp_path):
    from gobrrr import trace_examination
    from gobrrr.work import recorded_ops

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked: list[tuple[Recorded, Call]] = []

    def noted(one, *, tf32):
        call = results.call_of(one, tf32=tf32)
        if call is not None and not any(value.unrecorded for value in one.values):
            asked.append((one, call))
        return call

    monkeypatch.setattr(recorded_ops, "call_of", noted)
    trace_examination.examine_trace(shared(f"{name}.json.gz"))
    assert len(asked) > 5
    for one, call in asked:
        torchs = meta.call_of(one, tf32=call.tf32)
        assert torchs is not None
        agree(call, torchs)


def test_of_every_op_of_torch_it_is_known_whether_it_launches_and_whether_it_only_calls_others():
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    launching = {name for name in names if meta.launches(name)}
    calling = {name for name in names if meta.only_calls(name)}
    assert {"aten::view", "aten::empty", "aten::as_strided", "aten::detach"} <= names - launching
    assert {"aten::add", "aten::mm", "aten::convolution", "aten::copy_"} <= launching - calling
    assert {"aten::linear", "aten::conv2d", "aten::matmul", "aten::reshape"} <= calling


@pytest.mark.parametrize(
    "name", ["aten::__class__", "aten::__dict__", "__class__::x", "load_library::x", "aten::\ud83d", "::"]
)
def test_a_name_that_is_no_ops_says_nothing(name):
    assert meta.launches(name)
    assert not meta.only_calls(name)
