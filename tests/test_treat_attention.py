"""Attention that is spelled out is found in a traced graph, and one call of it computes the same."""

import math
from types import SimpleNamespace

import pytest
import torch
from torch._inductor.runtime.benchmarking import benchmarker
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

from gobrrr.treat.attention import attention_nodes, made_one_call, masks_named, read_in_place
from gobrrr.treat.compiling import (
    FOR_CPUS,
    REPETITIONS,
    AttentionCall,
    _shortest_ms,
    as_eager,
    eager_after,
    inductor_after,
    kernels_timed_behind_a_head_start,
    patient_compiler,
)
from gobrrr.treat.one_row import queries_spelled_out, rows_spelled_out
from gobrrr.treat.prescription import put_in_force
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.treatments import compile_tuned
from gobrrr.treat.treatments.compile_tuned import FEW_KEYS, tuned


def plain(q, k, v, mask):
    return (q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])).softmax(dim=-1) @ v


def scaled_before_and_filled(q, k, v, mask):
    scores = torch.matmul(q, k.mT) * 0.3
    return functional.softmax(scores.masked_fill(mask, float("-inf")), dim=-1) @ v


def added_to_in_fp32(q, k, v, mask):
    scores = q @ k.transpose(2, 3) + torch.where(mask, -1e9, 0.0)
    return torch.matmul(functional.softmax(scores, dim=-1, dtype=torch.float32).to(q.dtype), v)


def dropped_in_inference(q, k, v, mask):
    return functional.dropout((q @ k.mT).softmax(-1), 0.5, training=False) @ v


def dropped_as_usual(q, k, v, mask):
    return functional.dropout(plain_weights(q, k), 0.0) @ v


def plain_weights(q, k):
    return (q @ k.mT * 0.3).softmax(-1)


def added_thrice(q, k, v, mask):
    return torch.add(q @ k.mT, mask.float(), alpha=-3).softmax(-1) @ v


def divided_down(q, k, v, mask):
    return torch.div(q @ k.mT, 0.5, rounding_mode="floor").softmax(-1) @ v


def masked_in_place(q, k, v, mask):
    scores = q @ k.mT * 0.3
    scores.masked_fill_(mask, float("-inf"))
    return scores.softmax(-1) @ v


def scaled_in_place(q, k, v, mask):
    scores = q @ k.mT
    scores.mul_(0.3)
    return scores.softmax(-1) @ v


def set_in_place(q, k, v, mask):
    scores = q @ k.mT
    scores[..., 3:] = float("-inf")
    return scores.softmax(-1) @ v


def weights_set_in_place(q, k, v, mask):
    weights = (q @ k.mT).softmax(-1)
    weights[..., 3:] = 0.0
    return weights @ v


def query_written_between(q, k, v, mask):
    q = q * 1
    scores = q @ k.mT
    q.zero_()
    return scores.softmax(-1) @ v


WRITTEN = [masked_in_place, scaled_in_place, set_in_place, weights_set_in_place, query_written_between]


def over_rows(q, k, v, mask):
    return (q @ k.mT).softmax(dim=-2) @ v


def weights_returned(q, k, v, mask):
    weights = (q @ k.mT).softmax(dim=-1)
    return weights @ v + weights.sum()


def no_softmax(q, k, v, mask):
    return (q @ k.mT).relu() @ v


def dropped_weights_returned(q, k, v, mask):
    """What is dropped shows in both: the second is zero, whatever the draw."""
    weights = functional.dropout((q @ k.mT).softmax(dim=-1), 0.5)
    return weights.float() @ v - weights @ v


def traced(function, *inputs):
    """How many calls there are after the pass, and what the changed graph gives."""
    graphs = []
    backend = eager_after(made_one_call, graphs.append)
    with torch.no_grad():
        result = torch.compile(function, backend=backend)(*inputs)
    torch.compiler.reset()
    return sum(len(attention_nodes(graph)) for graph in graphs), result


def inputs(dtype=torch.float32):
    q, k, v = torch.randn(3, 2, 4, 6, 8, dtype=dtype)
    return q, k, v, torch.ones(6, 6, dtype=torch.bool).triu(1)


@pytest.mark.parametrize(
    "function", [plain, scaled_before_and_filled, added_to_in_fp32, dropped_in_inference, dropped_as_usual]
)
def test_attention_is_found_and_computes_the_same(function):
    given = inputs()
    calls, result = traced(function, *given)
    assert calls == 1
    torch.testing.assert_close(result, function(*given), rtol=1e-5, atol=1e-6)


LOOK_ALIKE = [over_rows, weights_returned, dropped_weights_returned, no_softmax, added_thrice, divided_down, *WRITTEN]


@pytest.mark.parametrize("function", LOOK_ALIKE)
def test_what_only_looks_like_attention_stays(function):
    given = inputs()
    calls, result = traced(function, *given)
    assert calls == 0
    torch.testing.assert_close(result, function(*given))


def test_a_mask_that_eager_did_not_pass_is_taken_out_of_the_traced_graph():
    def model(q, k, v, mask):
        dense = mask.logical_not() if torch.compiler.is_compiling() else None
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=dense, is_causal=dense is None)

    graphs = []
    backend = eager_after(as_eager([AttentionCall(masked=False, causal=True)]), graphs.append)
    given = inputs()
    with patient_compiler():
        result = torch.compile(model, backend=backend)(*given)
    torch.compiler.reset()
    (node,) = attention_nodes(graphs[0])
    assert node.kwargs["attn_mask"] is None
    assert node.kwargs["is_causal"] is True
    torch.testing.assert_close(result, model(*given))


@pytest.mark.parametrize("treatment", ["compile", "compile-tuned"])
@pytest.mark.parametrize("tokens", [6, 9], ids=["of the same size", "longer"])
def test_a_mask_that_a_program_passes_later_counts(treatment, tokens):
    """What eager did when nobody passed one says nothing of it."""
    torch.compiler.reset()
    held = {"x": torch.randn(2, 6, 16), "mask": None}

    def step():
        q = held["x"].unflatten(-1, (2, 8)).transpose(1, 2)
        with torch.no_grad():
            return functional.scaled_dot_product_attention(q, q, q, attn_mask=held["mask"])

    treated = subject_of(lambda: step)
    put_in_force(treated, (Dose(TREATMENTS[treatment], ("step",)),))
    torch.testing.assert_close(treated.run(), step())
    held |= {"x": torch.randn(2, tokens, 16), "mask": torch.rand(2, 1, tokens, tokens) < 0.7}
    torch.testing.assert_close(treated.run(), step())
    treated.end()


def joined(nothing, part):
    return torch.cat([nothing, part], dim=-2)


def of_an_empty_cache(q, k, v, _):
    nothing = torch.tensor([], dtype=k.dtype)
    return functional.scaled_dot_product_attention(q, joined(nothing, k), joined(nothing, v))


def of_a_cache_that_is_given_back(q, k, v, _):
    nothing = torch.empty(2, 4, 0, 8)
    keys, values = joined(nothing, k), joined(nothing, v)
    return functional.scaled_dot_product_attention(q, keys, values), keys, values


def of_a_cache_that_holds_something(q, k, v, _):
    return functional.scaled_dot_product_attention(q, joined(q, k), joined(q, v))


def of_keys_that_change_meanwhile(q, k, v, _):
    own = k + 1
    keys = joined(torch.tensor([]), own)
    own.mul_(2)
    return functional.scaled_dot_product_attention(q, keys, joined(torch.tensor([]), own))


def of_another_type(q, k, v, _):
    nothing = torch.tensor([], dtype=torch.float64)
    return functional.scaled_dot_product_attention(q.double(), joined(nothing, k), joined(nothing, v))


@pytest.mark.parametrize(
    ("attends", "left"),
    [
        (of_an_empty_cache, 0),
        (of_a_cache_that_is_given_back, 2),
        (of_a_cache_that_holds_something, 2),
        (of_keys_that_change_meanwhile, 1),
        (of_another_type, 2),
    ],
)
def test_keys_joined_to_nothing_are_read_where_they_are_unless_somebody_could_tell(attends, left):
    graphs, given = [], inputs()
    result = torch.compile(attends, backend=eager_after(read_in_place, graphs.append), fullgraph=True)(*given)
    torch.compiler.reset()
    assert len(graphs[0].find_nodes(op="call_function", target=torch.cat)) == left
    torch.testing.assert_close(result, attends(*given))


def test_a_size_that_only_the_data_tell_is_asked_nothing():
    def joins(x):
        return torch.cat([x[x > 0], x.flatten()]).sum()

    x = torch.randn(4, 8)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result = torch.compile(joins, backend=eager_after(read_in_place), fullgraph=True)(x)
    torch.compiler.reset()
    torch.testing.assert_close(result, joins(x))


@pytest.mark.parametrize(("keys", "split"), [(FEW_KEYS, False), (FEW_KEYS + 1, True), (0, True)])
def test_on_a_gpu_a_sum_over_few_keys_stays_one_kernel(keys, split, monkeypatch):
    def attends(q, k):
        return functional.scaled_dot_product_attention(q, k, k) if keys else q + k

    options = []
    backend = eager_after(lambda graph: options.append(tuned(graph)))
    torch.compile(attends, backend=backend)(torch.randn(1, 1, 1, 8), torch.randn(1, 1, keys or 1, 8))
    torch.compiler.reset()
    assert options == [FOR_CPUS]
    monkeypatch.setattr(compile_tuned, "is_for_gpus", lambda _graph: True)
    torch.compile(attends, backend=backend)(torch.randn(1, 1, 1, 8), torch.randn(1, 1, keys or 1, 8))
    torch.compiler.reset()
    assert options[1]["split_reductions"] is split


@pytest.mark.parametrize("backend", ["inductor", "ours"])
def test_on_a_cpu_weights_of_convolutions_are_not_copied_in_every_step(backend):
    layer, images = torch.nn.Conv2d(8, 8, 3, bias=False), torch.randn(2, 8, 16, 16)
    compiled = torch.compile(layer, backend=inductor_after() if backend == "ours" else backend)
    with torch.no_grad():
        found, (code,) = run_and_get_code(compiled, images)
    torch.compiler.reset()
    torch.testing.assert_close(found, layer(images))
    (call,) = (line for line in code.splitlines() if "extern_kernels.convolution(" in line)
    assert ("(arg" in call) is (backend == "ours"), call


@pytest.mark.parametrize(("second", "stays"), [(False, True), (True, False)])
def test_a_graph_with_another_number_of_calls_is_changed_only_where_all_are_alike(second, stays):
    def model(q, k, v, mask):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask.logical_not())

    graphs = []
    calls = [AttentionCall(masked=False, causal=True), AttentionCall(masked=False, causal=second)]
    with patient_compiler():
        torch.compile(model, backend=eager_after(as_eager(calls), graphs.append))(*inputs())
    torch.compiler.reset()
    assert (attention_nodes(graphs[0])[0].kwargs["attn_mask"] is not None) is stays


@pytest.mark.parametrize(
    ("mask", "options"),
    [
        (lambda n: ~torch.ones(n, n, dtype=torch.bool).triu(1), {"attn_mask": None, "is_causal": True}),
        (lambda n: torch.ones(n, n, dtype=torch.bool), {"attn_mask": None, "is_causal": False}),
        (lambda n: ~torch.ones(n, n, dtype=torch.bool).triu(2), None),
    ],
)
def test_a_constant_mask_gets_its_name(mask, options):
    def model(q, k, v, _):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(q.shape[-2]))

    graphs, given = [], inputs()
    result = torch.compile(model, backend=eager_after(masks_named, graphs.append))(*given)
    torch.compiler.reset()
    (node,) = attention_nodes(graphs[0])
    if options is None:
        assert node.kwargs["attn_mask"] is not None
    else:
        assert {name: node.kwargs[name] for name in options} == options
    torch.testing.assert_close(result, model(*given))


def set_later(n):
    mask = torch.ones(n, n, dtype=torch.bool)
    mask[:, 3:] = False
    return mask


def halved_in_place(n):
    mask = torch.ones(n, n, dtype=torch.bool)
    mask.tril_()
    return mask


def written_through_a_view(n):
    mask = torch.ones(n, n, dtype=torch.bool)
    mask.view(-1)[3:].zero_()
    return mask


def by_chance(n):
    return torch.rand(n, n) < 0.7


@pytest.mark.parametrize("mask", [set_later, halved_in_place, written_through_a_view, by_chance])
def test_a_mask_that_is_written_or_drawn_is_no_constant(mask):
    def model(q, k, v, _):
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(q.shape[-2]))

    graphs, given = [], inputs()
    torch.compiler.reset()
    torch.manual_seed(0)
    result = torch.compile(model, backend=eager_after(masks_named, graphs.append))(*given)
    (node,) = attention_nodes(graphs[0])
    assert node.kwargs["attn_mask"] is not None
    if mask is not by_chance:
        torch.testing.assert_close(result, model(*given))


def test_attention_spelled_out_with_a_mask_of_its_own_becomes_causal():
    def model(q, k, v, _):
        future = torch.ones(6, 6, dtype=torch.bool).triu(1)
        return (q @ k.mT / 8**0.5).masked_fill(future, float("-inf")).softmax(-1) @ v

    graphs, given = [], inputs()
    result = torch.compile(model, backend=eager_after(made_one_call, masks_named, graphs.append))(*given)
    torch.compiler.reset()
    (node,) = attention_nodes(graphs[0])
    assert (node.kwargs["attn_mask"], node.kwargs["is_causal"]) == (None, True)
    torch.testing.assert_close(result, model(*given))


def test_kernels_to_choose_from_are_timed_our_way_while_an_edit_is_in_force(monkeypatch):
    """Inductor asks one object for the time of a kernel, and that asks its method for GPUs."""
    monkeypatch.setattr("gobrrr.treat.compiling._shortest_ms", lambda call, **_: call())
    edit = kernels_timed_behind_a_head_start()
    edit.swap()
    try:
        assert benchmarker.benchmark(fn=lambda: 2.5, device="cuda", rep=40, is_vetted_benchmarking=True) == 2.5
    finally:
        edit.swap()
    assert "benchmark_gpu" not in vars(benchmarker)


def test_between_the_head_start_and_the_last_call_nothing_waits(monkeypatch):
    done = []

    class Event:
        def __init__(self, *, enable_timing):
            assert enable_timing

        def record(self):
            done.append("mark")

        def elapsed_time(self, _other):
            return 1.5

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: done.append("sleep"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: done.append("wait"))
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda: SimpleNamespace(L2_cache_size=64))
    monkeypatch.setattr(torch, "empty", lambda *_, **__: torch.ones(4))
    assert _shortest_ms(lambda: done.append("call"), rep=40) == 1.5
    assert done == ["call", "wait", "sleep", *["mark", "call", "mark"] * REPETITIONS, "wait"]


@pytest.mark.gpu
def test_a_kernel_takes_longer_the_more_it_reads():
    small, large = (torch.zeros(size, device="cuda") for size in (1 << 10, 1 << 28))
    assert 0 < _shortest_ms(small.sum) < _shortest_ms(large.sum)


def test_a_row_is_written_before_its_product_and_not_computed_in_it():
    """What Inductor's `realize` is for."""

    made = torch.compile(
        lambda x, w: functional.linear(functional.silu(x), w), backend=inductor_after(rows_spelled_out)
    )
    with torch.no_grad():
        _, (code,) = run_and_get_code(made, torch.randn(1, 24), torch.randn(8, 24))
    assert [".exp()" in loop for loop in code.split("for(int64_t x0")[1:]] == [True, False]


class Rows(torch.nn.Module):
    def __init__(self, bias):
        super().__init__()
        self.layer = torch.nn.Linear(24, 8, bias=bias)

    def forward(self, x):
        return self.layer(x).relu()


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize(("shape", "left"), [((1, 24), 0), ((1, 1, 24), 0), ((24,), 0), ((2, 24), 1)])
def test_a_product_of_one_row_is_written_by_its_definition_and_computes_the_same(shape, bias, left):
    model, x, products = Rows(bias), torch.randn(shape), []

    def count(graph):
        products.extend(graph.find_nodes(op="call_function", target=torch.nn.functional.linear))

    traced = torch.compile(model, backend=eager_after(rows_spelled_out, count))
    torch.testing.assert_close(traced(x), model(x))
    assert len(products) == left


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.complex128])
def test_wider_types_and_complex_ones_keep_all_their_digits(dtype):
    torch.manual_seed(0)
    layer, q = torch.nn.Linear(24, 8, dtype=dtype), torch.randn(1, 2, 1, 8, dtype=torch.float64)
    keys, x = torch.randn(1, 2, 5, 8, dtype=torch.float64), torch.randn(1, 24, dtype=dtype)

    def model(x, q, keys):
        return layer(x), functional.scaled_dot_product_attention(q, keys, keys)

    torch.compiler.reset()
    traced = torch.compile(model, backend=eager_after(queries_spelled_out, rows_spelled_out))
    for found, right in zip(traced(x, q, keys), model(x, q, keys), strict=True):
        torch.testing.assert_close(found, right)


def test_one_query_for_each_of_many_that_share_their_keys_is_left_to_torch():
    query, keys = torch.randn(3, 2, 1, 8), torch.randn(1, 2, 5, 8)

    def model(query, keys):
        return functional.scaled_dot_product_attention(query, keys, keys)

    torch.compiler.reset()
    traced = torch.compile(model, backend=eager_after(queries_spelled_out))
    torch.testing.assert_close(traced(query, keys), model(query, keys))


def test_under_autocast_rows_and_queries_are_left_to_it():
    """It casts what it knows by name, and a product of fp32 is one of bf16 there."""
    layer, q = torch.nn.Linear(24, 8), torch.randn(1, 2, 1, 8)

    def model(x, q):
        with torch.autocast("cpu", torch.bfloat16):
            return layer(x), functional.scaled_dot_product_attention(q, q, q)

    traced = torch.compile(model, backend=eager_after(queries_spelled_out, rows_spelled_out))
    for found, right in zip(traced(torch.ones(1, 24), q), model(torch.ones(1, 24), q), strict=True):
        torch.testing.assert_close(found, right)


def test_rows_under_a_transform_of_functions_are_left_to_it():
    weight = torch.randn(8, 24)
    mapped = torch.vmap(lambda x: functional.linear(x, weight))
    torch.compiler.reset()
    traced = torch.compile(mapped, backend=eager_after(rows_spelled_out))
    torch.testing.assert_close(traced(torch.ones(3, 1, 24)), mapped(torch.ones(3, 1, 24)))
