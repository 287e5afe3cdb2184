"""Products of layers that read the same tensor, merged: found without names, computed once, undone to the bit."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformers
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.compiling import eager_after, inductor_after, patient_compiler
from gobrrr.treat.once import computed_once
from gobrrr.treat.product import product_of, quantized
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
from gobrrr.treat.treatments.merged_projections import sharing_input
from gobrrr.treat.verify import truth, verified
from gobrrr.workload import Workload
from treating import attention, inference, subject

COMPILE = Dose(TREATMENTS["compile"], ("model:",))
LAYERS = 2


def llama(**config) -> Workload:
    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2}
    made = transformers.LlamaConfig(**sizes | {"intermediate_size": 64, "vocab_size": 40} | config)
    return Workload(transformers.LlamaForCausalLM(made).eval(), {"input_ids": torch.arange(12).reshape(2, 6)})


def merging(found: Subject) -> Dose:
    return Dose(TREATMENTS["merged-projections"], tuple("+".join(names) for names in sharing_input(found)))


def library_products(run) -> tuple[Any, int]:
    """What it returns, and the calls of a library's product in what Inductor wrote meanwhile."""
    result, code = run_and_get_code(run)
    torch.compiler.reset()
    assert code
    return result, sum(text.count("extern_kernels.mm(") + text.count("extern_kernels.addmm(") for text in code)


def test_layers_that_read_one_tensor_are_found_by_what_they_read():
    mlp = [f"model:model.layers.{layer}.mlp.{name}" for layer in range(LAYERS) for name in ("gate_proj", "up_proj")]
    found = sharing_input(subject(llama()))
    assert len(found) == 2 * LAYERS
    assert tuple(mlp[:2]) in found
    assert sharing_input(subject(inference())) == []


def test_of_a_llama_four_products_of_seven_are_left_in_a_layer():
    found = subject(llama())
    found.become((COMPILE,))
    _, before = library_products(found.run)
    found.become((merging(found), COMPILE))
    _, after = library_products(found.run)
    assert (before, after) == (7 * LAYERS + 1, 4 * LAYERS + 1)


def test_layers_are_found_behind_a_compiler_which_stays_in_force():
    found = subject(llama())
    kind = TREATMENTS["merged-projections"].kind
    with pytest.raises(Unfit, match="only a compiler"):
        kind.sites(SimpleNamespace(trains=False, subject=found))
    found.become((COMPILE,))
    assert kind.sites(SimpleNamespace(trains=False, subject=found)) == merging(found).sites
    assert found.plan == (COMPILE,)


def test_what_changes_products_sees_the_merged_ones():
    found = subject(attention())
    found.become((merging(found),))
    seen = []

    def look(graph):
        seen.extend(node for node in graph.nodes if getattr(node.target, "__name__", "") == "linear")

    torch.compiler.reset()
    with torch.no_grad():
        torch.compile(found.module("model:0"), backend=inductor_after(look))(torch.randn(2, 5, 16))
    assert len(seen) == 1


def test_a_merged_model_still_has_its_own_parameters_by_name_and_what_is_loaded_into_them_counts():
    found = subject(llama())
    (model,) = found.models.values()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    objects = {name: id(value) for name, value in model.named_parameters()}
    found.become((merging(found),))
    assert objects == {name: id(value) for name, value in model.named_parameters()}
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    doubled = {name: 2 * value for name, value in before.items()}
    model.load_state_dict(doubled)
    with torch.no_grad():
        merged = found.run().logits
        found.end()
        torch.testing.assert_close(merged, found.run().logits)
    assert all(torch.equal(value, doubled[name]) for name, value in model.state_dict().items())


def test_layers_with_a_tied_weight_or_without_the_others_bias_stay_alone():
    class Uneven(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.q, self.k, self.v = nn.Linear(8, 8), nn.Linear(8, 8, bias=False), nn.Linear(8, 8)
            self.tied, self.other = nn.Linear(8, 8), nn.Linear(8, 8)
            self.other.weight = self.tied.weight

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.q(x) * self.k(x) + self.v(x) + self.tied(x) + self.other(x * 2)

    assert sharing_input(subject(Workload(Uneven(), torch.randn(2, 8)))) == [("model:q", "model:v")]


def test_a_tensor_written_between_is_another_input():
    class Writing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = x.clone()
            return self.a(x) + self.b(x.mul_(2))

    assert sharing_input(subject(Workload(Writing(), torch.randn(2, 8)))) == []


def test_merged_layers_may_be_called_in_any_order():
    found = subject(attention())
    block = found.module("model:0")
    x = torch.randn(3, 5, 16)
    layers = block.query, block.key, block.value
    with torch.no_grad():
        before = [layer(x) for layer in layers]
        found.become((merging(found),))
        for layer, right in reversed(list(zip(layers, before, strict=True))):
            torch.testing.assert_close(layer(x), right)


# **** weights in int8 ****


@pytest.mark.parametrize("rows", [1, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_int8_product_is_off_by_half_a_step_of_its_scale(rows, dtype):
    """Each weight by at most half of a 127th of the largest of its row, so an output by that times the sum of |x|."""
    layer, x = nn.Linear(32, 12).to(dtype), torch.randn(rows, 32, dtype=dtype)
    with torch.no_grad():
        right, found = layer.double()(x.double()), quantized(product_of(layer.to(dtype)))(x)
        step = layer.weight.abs().amax(1).double() / 127
    assert found.dtype == dtype
    rounding = 4 * torch.finfo(dtype).eps * (1 + right.abs())
    assert ((found - right).abs() <= 0.5 * step * x.double().abs().sum(-1, keepdim=True) + rounding).all()


def test_an_int8_product_of_large_numbers_stays_finite_in_fp16():
    """Weights of a hundredth and inputs of a hundred: what is summed before it is scaled is 127 hundred each."""
    layer, x = nn.Linear(32, 12, bias=False).half(), torch.full((1, 32), 100.0).half()
    nn.init.constant_(layer.weight, 0.01)
    with torch.no_grad():
        torch.testing.assert_close(quantized(product_of(layer))(x), layer(x))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_int8_and_merging_go_together_in_either_order(order):
    found = subject(llama())
    known = truth(found)
    (model,) = found.models.values()
    linears = tuple(f"model:{name}" for name, module in model.named_modules() if type(module) is nn.Linear)
    doses = merging(found), Dose(TREATMENTS["int8-weight-only"], linears)
    before = [parameter.data_ptr() for parameter in model.parameters()]
    found.become((*(doses[place] for place in order), COMPILE))
    assert verified(found, known, found.plan).passed
    _, left = library_products(found.run)
    assert left == 4 * LAYERS + 1
    found.end()
    assert [parameter.data_ptr() for parameter in model.parameters()] == before


TUNED, GRAPH = Dose(TREATMENTS["compile-tuned"], ("model:",)), Dose(TREATMENTS["whole-step-graph"], ("step",))


@pytest.mark.parametrize(
    ("device", "dtype", "compiling"),
    [
        ("cpu", torch.float32, (TUNED,)),
        ("cpu", torch.bfloat16, (TUNED,)),
        pytest.param("cuda", torch.bfloat16, (TUNED, GRAPH), marks=pytest.mark.gpu),
    ],
)
@pytest.mark.parametrize(
    "names", [(), ("int8-weight-only",), ("merged-projections",), ("merged-projections", "int8-weight-only")]
)
def test_one_decoded_token_with_generated_products_computes_the_same(device, dtype, compiling, names):
    made = llama(hidden_size=256, intermediate_size=512)
    made.model.to(device, dtype)
    found = subject(Workload(made.model, {"input_ids": torch.tensor([[3]], device=device), "use_cache": False}), 3)
    known = truth(found)
    linears = tuple(name for name, module in found.modules() if type(module) is nn.Linear)
    sites = {"int8-weight-only": linears, "merged-projections": merging(found).sites}
    doses = [Dose(TREATMENTS[name], sites[name]) for name in names]
    before = [parameter.data_ptr() for parameter in made.model.parameters()]
    with patient_compiler():
        found.become((*doses, *compiling))
        checked, left = library_products(lambda: verified(found, known, found.plan))
    assert checked.passed, checked
    assert left == (device == "cuda"), "an angle times a place, of which Inductor makes a product on a GPU"
    found.end()
    assert [parameter.data_ptr() for parameter in made.model.parameters()] == before


# **** the pass that computes once ****


def linears(function, *inputs) -> tuple[int, bool]:
    """How many products are left, and whether the result is right."""
    graphs = []
    with torch.no_grad():
        right = function(*[one.clone() for one in inputs])
        torch.compiler.reset()
        found = torch.compile(function, backend=eager_after(computed_once, graphs.append))(*inputs)
    (graph,) = graphs
    count = sum(getattr(node.target, "__name__", "") == "linear" for node in graph.nodes)
    return count, torch.equal(found, right)


def plain(x, w):
    return functional.linear(x, w) + functional.linear(x, w).relu()


def cast_each_time(x, w):
    return functional.linear(x.double(), w.to(torch.float64)) + functional.linear(x.double(), w.to(torch.float64))


def widened_each_time(x, w):
    narrow, scale = w.to(torch.int8), w.abs().amax(1, keepdim=True)
    return functional.linear(x, (narrow * scale).to(x.dtype)) + functional.linear(x, (narrow * scale).to(x.dtype))


def other_weight(x, w):
    return functional.linear(x, w) + functional.linear(x, w * 2)


def written_between(x, w):
    first = functional.linear(x, w)
    x.mul_(2)
    return first + functional.linear(x, w)


def set_between(x, w):
    first = functional.linear(x, w)
    x[0] = 1
    return first + functional.linear(x, w)


def activated_in_place(x, w):
    first = functional.linear(x, w)
    nn.functional.relu(x, inplace=True)
    return first + functional.linear(x, w)


def in_another_precision(x, w):
    first = functional.linear(x, w)
    with torch.autocast("cpu", torch.bfloat16):
        return first + functional.linear(x, w)


@pytest.mark.parametrize(
    ("function", "left"),
    [
        (plain, 1),
        (cast_each_time, 2),
        (widened_each_time, 1),
        (other_weight, 2),
        (written_between, 2),
        (set_between, 2),
        (activated_in_place, 2),
        (in_another_precision, 2),
    ],
)
def test_what_is_asked_for_twice_is_computed_once_unless_it_may_differ(function, left):
    assert linears(function, torch.randn(4, 8), torch.randn(6, 8)) == (left, True)


def written_afterwards(x, w):
    first, second = functional.linear(x, w), functional.linear(x, w)
    first += 1
    return first - second


def activated_afterwards(x, w):
    first, second = functional.linear(x, w), functional.linear(x, w)
    first.view(-1)[3:].relu_()
    return first - second


def set_afterwards(x, w):
    first, second = w * w, w * w
    first[0] = 100.0
    return first - second


@pytest.mark.parametrize("function", [written_afterwards, activated_afterwards, set_afterwards])
def test_what_is_written_afterwards_is_computed_twice(function):
    assert linears(function, torch.randn(4, 8), torch.randn(6, 8))[1]


def test_whoever_is_given_both_may_write_into_one():
    def both(x, w):
        return functional.linear(x, w), functional.linear(x, w)

    torch.compiler.reset()
    with torch.no_grad():
        first, second = torch.compile(both, backend=inductor_after())(torch.randn(4, 8), torch.randn(6, 8))
        kept = second.clone()
        first.add_(1)
    assert torch.equal(second, kept)


def test_two_and_two_point_nought_are_two_products():
    def twice(x):
        return x * 2, x * 2.0

    torch.compiler.reset()
    found = torch.compile(twice, backend=inductor_after())(torch.arange(3))
    assert [one.dtype for one in found] == [torch.int64, torch.float32]


def test_weights_that_are_int8_are_not_made_so_again():
    layer = nn.Linear(8, 4)
    once = quantized(product_of(layer))
    assert quantized(once) is once
