"""The rule for numbers: as near to the truth as eager is, and no treatment that is wrong passes."""

import random
import sys
from ctypes import c_float
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import T5Config
from transformers.models.t5.modeling_t5 import T5Attention

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.errors import CannotDecide
from gobrrr.timing.state import preserved
from gobrrr.treat.edit import attribute, item, swap_on
from gobrrr.treat.numerics import check, check_distribution
from gobrrr.treat.observe import Watched, exact, gradients, redraw
from gobrrr.treat.reference import widen
from gobrrr.treat.samples import flat, seen
from gobrrr.treat.subject import Course, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Numerics
from gobrrr.treat.verify import INPUTS, truth, verified
from gobrrr.workload import Workload


def judged(eager, candidate, exact=None, *, name="result0", allowed=None):
    reference = None if exact is None else seen({name: exact})
    return check(seen({name: eager}), seen({name: candidate}), reference, Numerics.SAME, allowed)


@given(st.integers(0, 1000))
def test_rounding_to_bf16_once_more_passes_and_twice_as_coarse_does_not(seed):
    exact = torch.randn(1000, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    eager = exact.bfloat16()
    assert judged(eager, (exact * (1 + 2**-9)).bfloat16(), exact).passed
    assert not judged(eager, (exact * (1 + 2**-5)).bfloat16(), exact).passed


def test_nearer_to_the_truth_than_eager_passes_however_far_from_eager():
    exact = torch.randn(1000, dtype=torch.float64)
    eager = exact.float() + 0.1
    assert judged(eager, exact.float(), exact).passed


def test_a_step_in_fp64_may_not_be_computed_in_fp32_and_may_be_summed_in_another_order():
    exact = torch.randn(1000, dtype=torch.float64)
    assert judged(exact, exact * (1 + 1e-12), exact).passed
    assert not judged(exact, exact.float().double(), exact).passed
    rounded = exact.float().double()
    assert judged(rounded, rounded * (1 + 1e-6), exact).passed, "fp64 in the end alone"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_never_passes(wrong):
    eager = torch.randn(1000)
    candidate = eager.clone()
    candidate[17] = wrong
    assert "finite" in judged(eager, candidate).reason


def test_infinities_that_eager_has_too_are_no_fault():
    eager = torch.randn(100)
    eager[3] = -torch.inf
    assert judged(eager, eager.clone()).passed


def test_another_type_is_no_reordering_however_near_its_numbers():
    eager = torch.arange(100.0)
    assert "bfloat16 and was" in judged(eager, eager.bfloat16()).reason
    assert judged(eager, eager.bfloat16(), eager.double(), allowed="bf16").passed
    assert not judged(eager, eager.bfloat16(), eager.double(), allowed="tf32").passed
    assert judged(eager, eager.double(), name="step of model.weight").passed, "what a step leaves may be kept otherwise"


def test_integers_are_equal_or_wrong():
    assert judged(torch.arange(9), torch.arange(9)).passed
    assert "integers" in judged(torch.arange(9), torch.arange(9).flip(0)).reason


def test_an_error_in_elements_that_nobody_looked_at_shows_in_the_size_of_the_whole():
    eager = torch.randn(1 << 20)
    candidate = eager.clone()
    candidate[1::16] = 0  # of every 64 the first is looked at
    assert not judged(eager, candidate).passed


@pytest.mark.parametrize("rest", [1e-12, 0.0], ids=["small", "zero"])
def test_few_that_are_large_and_were_not_looked_at_may_be_rounded_and_not_be_wrong(rest):
    """As second moments of a head: of its words some have been right, and all others were unlikely."""
    right = rest * torch.rand(1 << 17, dtype=torch.float64)
    spikes = slice(1, None, 9 * 1820)  # of every 9 the first is looked at
    right[spikes] = 1e-4 * torch.rand(9, dtype=torch.float64)
    eager = right.float()
    rounded, wrong = eager * (1 + 2**-22), eager.clone()
    wrong[spikes] *= 1.001
    assert judged(eager, rounded, right).passed
    assert not judged(eager, wrong, right).passed


@pytest.mark.parametrize("allowed", [None, "bf16"])
@pytest.mark.parametrize("noise", [0.0, 1.0], ids=["exact", "noise"])
def test_few_that_are_large_are_not_excused_by_what_is_usual_elsewhere(allowed, noise):
    """As of a table of words whose rows hardly anybody read, beside layers that all did."""
    torch.manual_seed(0)
    layers = {f"gradient of {number}": 1e-2 * torch.randn(1000, dtype=torch.float64) for number in range(5)}
    table = 1e-9 * torch.rand(1 << 22, dtype=torch.float64)
    spikes = slice(1, None, 257 * 100)  # of every 257 the first is looked at
    table[spikes] = 1.0
    right = {**layers, "gradient of table": table}
    eager = {name: one.float() for name, one in right.items()}
    shaken = eager["gradient of table"] + noise * 1e-9 * torch.randn(1 << 22)
    shaken[spikes] = 1.0
    eager["gradient of table"] = shaken
    for factor, passed in ((1.0, True), (0.0, False), (2.0, False)):
        candidate = {**eager, "gradient of table": shaken.clone()}
        candidate["gradient of table"][spikes] *= factor
        assert check(seen(eager), seen(candidate), seen(right), Numerics.SAME, allowed).passed == passed


def test_what_is_zero_but_for_rounding_is_measured_by_the_usual_error():
    """As the gradient of a key's bias: softmax does not see it, and every program has other noise there."""
    generator = torch.Generator().manual_seed(0)
    exact = {f"gradient of {i}": torch.randn(99, generator=generator, dtype=torch.float64) for i in range(3)}
    exact["gradient of zero"] = torch.zeros(99, dtype=torch.float64)
    eager = {name: one + 1e-3 * torch.randn(99, generator=generator) for name, one in exact.items()}
    eager["gradient of zero"] = torch.full((99,), 1e-9, dtype=torch.float64)
    noisy = eager | {"gradient of zero": torch.full((99,), 1e-3, dtype=torch.float64)}
    wrong = eager | {"gradient of zero": torch.full((99,), 1.0, dtype=torch.float64)}

    def found(candidate):
        observations = map(seen, (eager, candidate, exact))
        return check(*observations, Numerics.SAME, None)

    assert found(noisy).passed
    assert not found(wrong).passed


def test_what_was_allowed_may_be_coarser_but_not_wrong():
    exact = torch.randn(1000, dtype=torch.float64)
    assert not judged(exact.float(), exact.bfloat16(), exact).passed
    assert judged(exact.float(), exact.bfloat16(), exact, allowed="bf16").passed
    assert not judged(exact.float(), 2 * exact.bfloat16(), exact, allowed="bf16").passed


def test_other_random_numbers_of_one_distribution_pass_and_another_rate_does_not():
    def draws(seed, rate):
        generator = torch.Generator().manual_seed(seed)
        masks = [torch.rand(4096, generator=generator) >= rate for _ in range(8)]
        return [seen({"result0": mask.float()}) for mask in masks]

    assert check_distribution(draws(0, 0.1), draws(1, 0.1), Numerics.SAME).passed
    assert not check_distribution(draws(0, 0.1), draws(1, 0.2), Numerics.SAME).passed


class Shuffled(torch.nn.Linear):
    """Sums in another order each time, as kernels with atomic additions do."""

    def forward(self, x):
        order = torch.randperm(self.in_features)
        with torch.autocast("cpu", torch.bfloat16):
            return torch.nn.functional.linear(x[:, order], self.weight[:, order], self.bias)


def sums(layer, noise: float = 0.0) -> Workload:
    torch.manual_seed(0)
    model = torch.nn.Sequential(layer(512, 64), torch.nn.GELU(), layer(64, 8))
    return Workload(model, torch.randn(16, 512), loss=lambda y: (y + noise * torch.randn_like(y)).square().mean())


def test_sums_in_another_order_are_no_chance():
    assert truth(subject_of(lambda: sums(Shuffled))).repeats


def test_little_noise_on_purpose_is():
    assert not truth(subject_of(lambda: sums(torch.nn.Linear, 1e-3))).repeats


class Skipped(torch.nn.Linear):
    """Left out at random, as blocks are by stochastic depth."""

    drop_prob = None

    def forward(self, x):
        return torch.nn.functional.dropout(super().forward(x), self.drop_prob, self.training)


def skipped():
    found = Skipped(8, 8)
    found.drop_prob = 0.25
    return found


@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.nn.Dropout(0.1),
        skipped,
        lambda: torch.nn.TransformerEncoderLayer(8, 2, 8),
        lambda: torch.nn.LSTM(8, 8, num_layers=2, dropout=0.5),
        lambda: T5Attention(T5Config(d_model=8, num_heads=2, d_kv=4)),
    ],
    ids=["dropout", "depth", "encoder", "lstm", "t5"],
)
def test_whichever_module_holds_a_rate_nothing_is_dropped_when_gradients_are_compared(made):
    model = torch.nn.ModuleList([torch.nn.Linear(8, 8), made()])

    def step():
        found = model[1](model[0](torch.ones(4, 2, 8)))
        loss = (found[0] if isinstance(found, tuple) else found).square().sum()
        loss.backward()
        return loss.detach()

    known = known_of(step)
    assert known.repeats
    assert known.chances, "and it is random, when nobody compares"
    assert any(not one["result0"].values.equal(known.chances[0]["result0"].values) for one in known.chances)


@pytest.mark.parametrize("zeroed", [None, "before", "after", "by hand"])
def test_gradients_are_what_a_step_makes_whatever_was_left_before_it(zeroed):
    layer, x = torch.nn.Linear(8, 8), torch.randn(4, 8)
    optimizer = torch.optim.SGD(layer.parameters())

    def step():
        if zeroed == "before":
            optimizer.zero_grad()
        if zeroed == "by hand":
            for parameter in layer.parameters():
                parameter.grad.zero_()
        layer(x).square().sum().backward()
        optimizer.step()
        if zeroed == "after":
            optimizer.zero_grad()

    found = subject_of(lambda: step)
    layer(x).square().sum().backward()
    (first,) = gradients(found, INPUTS[:1])
    left = [parameter.grad.normal_().clone() for parameter in layer.parameters()]
    (other,) = gradients(found, INPUTS[:1])
    assert set(first) == {"gradient of model.weight", "gradient of model.bias"}
    assert all(first[name].values.equal(other[name].values) for name in first)
    assert all(parameter.grad.equal(own) for parameter, own in zip(layer.parameters(), left, strict=True))


class Kink(torch.nn.Module):
    """ReLUs around zero; the last one's input is the nearest."""

    def __init__(self, nearest: float) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.cat([torch.linspace(0.5, 1.5, 200), torch.tensor([1 + nearest])]))
        self.in_another_order = self.forgets_the_last = False

    def forward(self, x):
        tiny = 2.0**-26
        near = self.weight + tiny - 1 if self.in_another_order else self.weight - 1 + tiny
        if self.forgets_the_last:
            near = torch.cat([near[:-1], near[-1:].detach()])
        return x * near.relu()


def kinked(nearest: float, treated: str):
    """A step, what is right of it, and the step as it is when that much about it is another."""
    model = Kink(nearest)
    found = subject_of(lambda: Workload(model, torch.ones(201), loss=torch.sum))
    known = truth(found)
    found.courses.append(Course(Dose(TREATMENTS["compile"], ()), swap_on([attribute(model, treated, value=True)])))
    return found, known


def test_what_rounding_alone_turns_over_is_no_mistake():
    """In fp32 1 + tiny - 1 is 0, and the ReLU's gradient with it."""
    found, known = kinked(nearest=0.0, treated="in_another_order")
    turned = gradients(found, INPUTS)[0]
    assert turned["gradient of model.weight"].values[-1] == 0 != known.exact[0]["gradient of model.weight"].values[-1]
    assert verified(found, known, found.plan).passed


def test_no_two_shakes_are_alike_and_each_is_the_same_again():
    found = subject_of(lambda: Workload(torch.nn.Linear(3, 3), torch.ones(1, 3)))
    one, other, again = (
        exact(found, INPUTS[:1], Watched({}, 1), shake=shake)[0]["result0"].values for shake in (1, 2, 1)
    )
    assert not one.equal(other)
    assert one.equal(again)


def test_the_same_where_rounding_could_not_is_one():
    found, known = kinked(nearest=0.001, treated="forgets_the_last")
    assert "gradient of model.weight: off" in verified(found, known, found.plan).reason


def test_what_has_moved_the_step_is_not_taken_for_rounding():
    """Shaken where it is now it lies as far from the truth as it does unshaken."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    found = trained(lambda: layer(x).square().mean(), torch.optim.SGD(layer.parameters(), lr=1e-2))
    known, said = truth(found), []
    found.courses.append(Course(Dose(TREATMENTS["compile"], ()), []))
    assert verified(found, known, found.plan, said.append).passed
    assert not said
    found.run()
    assert not verified(found, known, found.plan, said.append).passed
    assert "rounding alone" in said[0]


class Masked(torch.nn.Linear):
    """Drops at random; once that is captured, by the same numbers for ever. What is left is scaled, or not."""

    captured, scaled = None, True

    def forward(self, x):
        drawn = torch.rand(x.shape) if self.captured is None else self.captured
        return super().forward(x * (drawn >= self.drop) / (1 - self.drop if self.scaled else 1))


@pytest.mark.parametrize("gives", [True, False], ids=["with a result", "with none"])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [("captured", torch.rand(16, 64), "same for every seed"), ("scaled", False, "standard errors from")],
    ids=["the same for ever", "not scaled"],
)
def test_what_is_wrong_with_dropout_alone_is_found_out(name, value, said, gives):
    torch.manual_seed(0)
    model, x = Masked(64, 64), torch.randn(16, 64)
    model.drop = 0.5
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach() if gives else None

    found = subject_of(lambda: step)
    found.run()
    known = truth(found)
    assert known.repeats
    found.courses.append(Course(Dose(TREATMENTS["compile"], ()), []))
    assert verified(found, known, found.plan).passed
    found.courses.append(Course(Dose(TREATMENTS["compile"], ()), swap_on([attribute(model, name, value)])))
    assert said in verified(found, known, found.plan).reason


def treated(found, *edits):
    found.courses.append(Course(Dose(TREATMENTS["compile"], ()), swap_on(edits)))
    return found


def trained(loss, optimizer):
    """A step that leaves its gradients, and gives its loss."""

    def step():
        optimizer.zero_grad()
        found = loss()
        found.backward()
        optimizer.step()
        return found.detach()

    found = subject_of(lambda: step)
    for _ in range(2):
        found.run()
    return found


class Heads(torch.nn.Module):
    """Two, of which one is idle: as it is compiled, it may get gradients of zero."""

    def __init__(self):
        super().__init__()
        self.main, self.idle, self.asked = torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), False

    def forward(self, x):
        return self.main(x) + 0 * self.idle(x) if self.asked else self.main(x)


def test_what_a_step_leaves_alone_stays_as_it_is():
    """A gradient of zero is another than none: AdamW lets the weight decay."""
    model, x = Heads(), torch.randn(4, 8)
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.1)
    found = trained(lambda: model(x).square().mean(), optimizer)
    known = truth(found)
    assert verified(treated(found), known, found.plan).passed
    assert (
        "leaves it alone" in verified(treated(found, attribute(model, "asked", value=True)), known, found.plan).reason
    )


class Remembering(torch.nn.Module):
    """Given a memory, it computes once: what it is asked later is answered so too."""

    def __init__(self):
        super().__init__()
        self.layer, self.memory, self.of = torch.nn.Linear(8, 8), None, lambda model, x: model.layer(x)

    def forward(self, x):
        if self.memory is None:
            return self.of(self, x)
        if not self.memory:
            self.memory.append(self.of(self, x).detach())
        return self.memory[0]


def positive(_model, x):
    return (x > 0).to(x)


def test_what_was_computed_once_for_all_is_found_out():
    """Between two steps nothing is put back, and the inputs are others."""
    model = Remembering()
    found = subject_of(lambda: Workload(model, torch.randn(16, 8)))
    known = truth(found)
    assert verified(treated(found), known, found.plan).passed
    assert "result1" in verified(treated(found, attribute(model, "memory", [])), known, found.plan).reason


def test_a_mask_of_the_first_input_is_found_out():
    model = Remembering()
    model.of = positive
    found = subject_of(lambda: Workload(model, torch.randn(16, 8)))
    known = truth(found)
    assert "result1" in verified(treated(found, attribute(model, "memory", [])), known, found.plan).reason


def test_inputs_stay_as_they_are():
    model, x = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(8, 8)), torch.randn(16, 8)
    found = subject_of(lambda: Workload(model, x))
    known = truth(found)
    in_place = attribute(model[0], "inplace", value=True)
    assert "input 0: is changed" in verified(treated(found, in_place), known, found.plan).reason


def test_a_cache_that_is_filled_with_what_is_there_may_be_filled_by_another_way_of_rounding():
    model, x, cache = torch.nn.Linear(64, 64), torch.randn(1, 64), torch.zeros(1, 64)

    def step():
        with torch.no_grad():
            cache.copy_(model(x))
            return cache.sum()

    def in_parts():
        with torch.no_grad():
            cache.copy_(sum(part @ w.mT for part, w in zip(x.split(8, 1), model.weight.split(8, 1), strict=True)))
            cache.add_(model.bias)
            return cache.sum()

    found = subject_of(lambda: step)
    found.run()
    known = truth(found)
    assert verified(treated(found, attribute(found, "step", in_parts)), known, found.plan).passed


class Averaged(torch.nn.Module):
    """Keeps a mean that it computes anew, and does not write into its place."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(()))
        self.momentum = 0.9

    def forward(self, x):
        self.mean = self.momentum * self.mean + x.detach().square().mean()
        return x - self.mean


@pytest.mark.parametrize("momentum", [0.9, 0.5])
def test_what_a_name_means_afterwards_is_compared_too(momentum):
    model = Averaged()
    found = subject_of(lambda: lambda: model(torch.ones(8)) * 0)
    found.run()
    known = truth(found)
    checked = verified(treated(found, attribute(model, "momentum", momentum)), known, found.plan)
    assert checked.passed == (momentum == 0.9)


KEPT, FACTOR = torch.zeros(()), torch.tensor(0.9)


def keeping():
    """Under a global name."""
    global KEPT  # noqa: PLW0603 (as scripts do)
    KEPT = FACTOR * KEPT + 1
    return torch.zeros(8)


@pytest.mark.parametrize("factor", [0.9, 0.5])
def test_what_a_global_name_means_afterwards_is_compared_too(factor):
    found = subject_of(lambda: keeping)
    found.run()
    known = truth(found)
    changed = attribute(sys.modules[__name__], "FACTOR", torch.tensor(factor))
    with preserved(found.origin):
        checked = verified(treated(found, changed), known, found.plan)
    assert checked.passed == (factor == 0.9)


@pytest.mark.parametrize("allowed", ["compile", "bf16-autocast"])
@pytest.mark.parametrize("rate", [0.0, -1e-4], ids=["no step", "the other way"])
def test_an_optimizer_that_does_not_do_its_work_is_found_out_whatever_is_allowed(allowed, rate):
    """Its steps are a percent of a percent of the weights: judged by these, they are not there."""
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-4)
    found = trained(lambda: layer(x).square().mean() * 1e-6, optimizer)
    known = truth(found)
    found.courses.append(Course(Dose(TREATMENTS[allowed], ()), []))
    assert verified(found, known, found.plan).passed
    swap_on([item(optimizer.param_groups[0], "lr", rate)])
    assert not verified(found, known, found.plan).passed


class Wrapper(torch.optim.Optimizer):
    """As libraries make them: an optimizer in name, with no hooks and no state of its own."""

    def __init__(self, inner):
        self.inner = inner

    @property
    def param_groups(self):
        return self.inner.param_groups

    @property
    def state(self):
        return self.inner.state

    def step(self, closure=None):
        self.inner.step(closure)

    def zero_grad(self, *_how):
        self.inner.zero_grad()


@pytest.mark.parametrize("rate", [1e-2, 2e-2])
@pytest.mark.parametrize("beside", ["nothing", "an idle one", "a wrapper"])
@pytest.mark.parametrize("done", range(4), ids="{} of 4 added up".format)
def test_an_optimizer_that_waits_for_several_steps_is_waited_for(done, beside, rate):
    layer, x, count = torch.nn.Linear(64, 64), torch.randn(16, 64), [0]
    inner = torch.optim.SGD(layer.parameters(), lr=1e-2)
    optimizer = Wrapper(inner) if beside == "a wrapper" else inner
    idle = torch.optim.SGD(torch.nn.Linear(2, 2).parameters()) if beside == "an idle one" else None

    def step(_held=idle):
        loss = layer(x).square().mean()
        loss.backward()
        count[0] += 1
        if count[0] % 4 == 0:
            optimizer.step()
            optimizer.zero_grad()
        return loss

    found = subject_of(lambda: step)
    for _ in range(4 + done):
        found.run()
    known = truth(found)
    assert known.watched.steps == max(2, 4 - done)
    swap_on([item(optimizer.param_groups[0], "lr", rate)])
    assert verified(found, known, found.plan).passed == (rate == 1e-2)
    assert count == [4 + done]


def test_nobody_waits_for_ever_for_an_optimizer():
    layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    optimizer = torch.optim.SGD(layer.parameters())

    def step():
        optimizer.zero_grad()
        loss = layer(x).square().mean()
        loss.backward()
        return loss

    found = subject_of(lambda: step)
    assert optimizer in found.optimizers
    assert truth(found).watched.steps == 2


def test_one_less_a_decay_may_be_computed_in_fp32_as_fused_optimizers_do_on_a_gpu():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-2)
    found = trained(lambda: layer(x).square().mean(), optimizer)
    known, said = truth(found), []
    swap_on([item(optimizer.param_groups[0], "betas", (0.9, c_float(0.999).value))])
    assert verified(found, known, found.plan, said.append).passed
    assert not said


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")  # Dynamo
def test_a_compiled_bias_below_a_batch_normalization_may_be_another_zero():
    """Its gradient is nothing but rounding, of which a compiler makes ten times as much."""
    torch.manual_seed(0)
    nn = torch.nn
    one, other = (nn.Sequential(nn.Conv2d(size, 16, 3), nn.BatchNorm2d(16), nn.ReLU()) for size in (3, 16))
    model, x = nn.Sequential(one, other, nn.Flatten(), nn.Linear(16 * 64, 10)), torch.randn(8, 3, 12, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = subject_of(lambda: Workload(model, x, loss=lambda out: out.logsumexp(1).mean(), optimizer=optimizer))
    for _ in range(3):
        found.run()
    known, said = truth(found), []
    found.become((Dose(TREATMENTS["compile"], ("step",)),))
    with preserved(found.origin):
        checked = verified(found, known, found.plan, said.append)
    assert checked.passed, checked.reason
    assert not said


class Feeding(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.up, self.down = torch.nn.LayerNorm(64), torch.nn.Linear(64, 256), torch.nn.Linear(256, 64)
        self.gelu = torch.nn.GELU()
        for layer in (self.up, self.down):
            torch.nn.init.normal_(layer.weight, std=0.02)

    def forward(self, x):
        return x + self.down(self.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.AdamW])
def test_one_gelu_is_not_another(optimizer):
    """With weights as small as they begin, the two differ by less than a ten-thousandth."""
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(Feeding(), Feeding(), torch.nn.Linear(64, 64)), torch.randn(32, 64)
    found = trained(lambda: model(x).logsumexp(1).mean(), optimizer(model.parameters(), lr=1e-2))
    known = truth(found)
    assert verified(found, known, found.plan).passed
    edits = [attribute(block.gelu, "approximate", "tanh") for block in model[:2]]
    assert not verified(treated(found, *edits), known, found.plan).passed


class Rounded(torch.autograd.Function):
    """To the ten bits of TF32, and its gradient too."""

    @staticmethod
    def forward(ctx, x):
        return ((x.view(torch.int32) + (1 << 12)) & -(1 << 13)).view(torch.float32)

    @staticmethod
    def backward(ctx, grad):
        return Rounded.apply(grad)


def test_tf32_that_nobody_has_allowed_is_found_out():
    torch.manual_seed(0)
    layers, x = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(3))), torch.randn(16, 64)
    found = trained(lambda: layers(x).square().mean(), torch.optim.SGD(layers.parameters(), lr=1e-2))
    known = truth(found)

    def product(layer, x):
        return Rounded.apply(torch.nn.functional.linear(Rounded.apply(x), Rounded.apply(layer.weight), layer.bias))

    edits = [attribute(layer, "forward", partial(product, layer)) for layer in layers]
    assert not verified(treated(found, *edits), known, found.plan).passed


@pytest.mark.parametrize(("off", "passes"), [(4e-4, False), (1e-3, True)])
@pytest.mark.parametrize("before", [None, 1.0])
def test_what_was_computed_in_two_bytes_may_be_off_by_three_times_what_eager_is(off, passes, before):
    """Whatever type it is given in; a weight that changes by little is as far off as its change."""
    generator = torch.Generator().manual_seed(0)
    made, noise = (torch.randn(5000, generator=generator, dtype=torch.float64) for _ in range(2))
    start = torch.zeros(5000, dtype=torch.float64) if before is None else 10 + made.flip(0)
    eager, own, right, was = (
        {"model.weight": seen({"one": start + made * (1 + by * noise)})["one"]}
        for by in (off, 2.5 * off, 0, -1 / noise)
    )
    narrow = {name: replace(one, dtype="float32") for name, one in eager.items()}
    assert check(narrow, own, right, Numerics.SAME, None, before=None if before is None else was).passed == passes


class Looking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        nn = torch.nn
        one, other = (nn.Sequential(nn.Conv2d(size, 16, 3), nn.BatchNorm2d(16), nn.ReLU()) for size in (3, 16))
        self.body, self.attention = nn.Sequential(one, other), nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, images):
        tokens = self.body(images).flatten(2).mT
        return self.attention(tokens, tokens, tokens)[0]


@pytest.mark.parametrize("rate", [1e-3, 2e-3])
def test_what_was_allowed_moves_small_biases_by_chance_and_no_rate_is_another(rate):
    """A key's bias has no gradient but noise, of which AdamW makes a whole step; convolutions below norms have some."""
    torch.manual_seed(0)
    model, images = Looking(), torch.randn(4, 3, 12, 12)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    found = trained(lambda: model(images).square().mean(), optimizer)
    known = truth(found)
    found.become((Dose(TREATMENTS["bf16-autocast"], ("model:",)),))
    swap_on([item(optimizer.param_groups[0], "lr", rate)])
    checked = verified(found, known, found.plan)
    assert checked.passed == (rate == 1e-3), checked
    assert checked.worst_error > 1e-3, "in bf16 it was"


def test_parameters_that_share_memory_share_it_in_fp64():
    """Else what a flat optimizer does is not seen there, and nothing that it does is wrong."""
    torch.manual_seed(0)
    flat, x = torch.nn.Parameter(torch.randn(72)), torch.randn(16, 8)
    weight, bias = flat.data[:64].view(8, 8), flat.data[64:]
    flat.grad = torch.zeros_like(flat)

    def step():
        w, b = weight.detach().requires_grad_(), bias.detach().requires_grad_()
        loss = torch.nn.functional.linear(x, w, b).square().mean()
        loss.backward()
        flat.data.sub_(torch.cat([w.grad.flatten(), b.grad]), alpha=0.1)
        return loss.detach()

    found = subject_of(lambda: step)
    found.run()
    known = truth(found)
    for eager, exact_one in zip(known.eager, known.exact, strict=True):
        assert eager["result1"].values == pytest.approx(exact_one["result1"].values, rel=1e-5)


def test_in_bf16_no_shake_excuses_a_fifth_too_much():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 64)).bfloat16().eval()
    found = subject_of(lambda: Workload(model, torch.randn(16, 64, dtype=torch.bfloat16)))
    known = truth(found)
    step = found.step
    assert not verified(treated(found, attribute(found, "step", lambda: step() * 1.2)), known, found.plan).passed


class Left(torch.nn.Linear):
    """A layer that is left out in most steps."""

    def forward(self, x):
        return x if self.drop and torch.rand(()) < self.drop else super().forward(x)


def test_a_layer_that_is_left_out_by_chance_is_not_left_alone():
    torch.manual_seed(0)
    model, x = torch.nn.Sequential(*(Left(8, 8) for _ in range(4))), torch.randn(4, 8)
    for layer in model:
        layer.drop = 0.9
    found = trained(lambda: (model(x) + model[0].bias).square().mean(), torch.optim.SGD(model.parameters(), 0.1))
    known = truth(found)
    assert known.repeats
    assert verified(treated(found), known, found.plan).passed


def test_a_buffer_that_is_made_anew_may_be_written_in_place_as_a_captured_step_does():
    model = Averaged()
    found = subject_of(lambda: lambda: model(torch.ones(8)) * 0)
    found.run()
    known = truth(found)

    def replayed():
        model.mean.mul_(0.9).add_(1)
        return torch.zeros(8)

    assert verified(treated(found, attribute(found, "step", replayed)), known, found.plan).passed


def test_slices_of_a_large_memory_are_widened_alone():
    large = torch.randn(1 << 20)
    one, other = large[100:116], large[120:136]
    known = truth(subject_of(lambda: partial(torch.mul, one, other)))
    assert known.exact
    found = subject_of(lambda: partial(torch.mul, one, other))
    with preserved(found.origin):
        assert widen(found, torch.float64)
        assert one.dtype == torch.float64
        assert one.untyped_storage().nbytes() == 36 * 8


@pytest.mark.parametrize(
    ("made", "is_drawn"),
    [
        (lambda: torch.ones(64), True),
        (lambda: torch.zeros(64), True),
        (lambda: torch.full((64,), 999.0), False),
        (lambda: torch.zeros(8, 8).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf), False),
    ],
    ids=["ones", "zeros", "times", "mask"],
)
def test_inputs_full_of_one_number_stay_between_zero_and_it(made, is_drawn):
    """A target of ones that were more would end a process on a GPU."""
    tensor = made()
    values = set(tensor.flatten().tolist())
    redraw([tensor], 11)
    assert not tensor.isnan().any()
    assert (set(tensor.flatten().tolist()) != values) == is_drawn
    if is_drawn:
        assert 0 <= tensor.min() <= tensor.max() <= 1
        assert tensor.equal(tensor.bfloat16().float())


def test_tensors_without_numbers_are_nothing_to_compare():
    model = torch.nn.Linear(4, 4)
    model.register_buffer("shape", torch.empty(3, device="meta"))
    found = subject_of(lambda: Workload(model, torch.randn(2, 4)))
    known = truth(found)
    assert verified(treated(found), known, found.plan).passed


def test_who_holds_a_generator_of_his_own_is_random_too():
    generator = torch.Generator()
    assert not known_of(lambda: torch.ones(3) * torch.rand(3, generator=generator)).repeats


def test_an_input_full_of_one_number_is_no_input_for_which_a_step_may_be_right_by_chance():
    x = torch.zeros(64)
    found = subject_of(lambda: Workload(torch.nn.Identity(), x, loss=None))
    known = truth(found)
    assert not verified(treated(found, attribute(found, "step", x.sin)), known, found.plan).passed


def test_parameters_that_no_model_holds_have_gradients_and_moments_of_their_own():
    free = [torch.nn.Parameter(torch.randn(4)) for _ in range(3)]
    found = trained(lambda: sum(one.square().sum() for one in free), torch.optim.AdamW(free))
    known = truth(found)
    assert {f"exp_avg of parameter {number}" for number in range(3)} <= set(known.watched.places)
    assert {f"gradient of parameter {number}" for number in range(3)} <= set(known.eager[0])


def test_small_results_beside_large_ones_are_held_to_their_own_size():
    sizes = {"result0.logits": 0.1, "result0.states[0]": 20.0, "result0.states[1]": 30.0}
    exact_ones = {name: size * torch.randn(999, dtype=torch.float64) for name, size in sizes.items()}
    eager = {name: one.bfloat16() for name, one in exact_ones.items()}
    lost = eager | {"result0.logits": torch.zeros(999, dtype=torch.bfloat16)}
    assert check(*map(seen, (eager, eager, exact_ones)), Numerics.SAME, None).passed
    assert not check(*map(seen, (eager, lost, exact_ones)), Numerics.SAME, None).passed


# **** what there is to compare ****


def swapped_columns(logits):
    return logits[:, torch.arange(logits.shape[1]).view(-1, 64).flip(1).flatten().roll(1)]


@pytest.mark.parametrize(
    "wrong",
    [
        lambda logits: logits.flatten(),
        swapped_columns,
        lambda logits: torch.where(torch.arange(4096) == 4095, torch.nan, logits),
        lambda logits: torch.where(torch.arange(4096) % 64 == 1, -logits, logits),
    ],
    ids=["flat", "swapped", "not a number", "negated"],
)
def test_what_is_wrong_between_the_elements_that_are_looked_at_is_found_out(wrong):
    logits = torch.randn(256, 4096)
    assert judged(logits, logits.clone(), logits.double()).passed
    assert not judged(logits, wrong(logits), logits.double()).passed


def test_of_integers_every_one_counts():
    ids = torch.arange(100_000)
    wrong = ids.clone()
    wrong[3] = 7
    assert judged(ids, ids.clone(), name="tensor 0").passed
    assert not judged(ids, wrong, name="tensor 0").passed
    assert judged(ids, wrong).passed, "but for a tie of results"


@pytest.mark.filterwarnings("ignore:Sparse invariant checks are implicitly disabled")  # torch 2.11, whatever one says
def test_sparse_gradients_lie_where_they_lie():
    def sparse(rows):
        return torch.sparse_coo_tensor(torch.tensor([rows]), torch.ones(2, 4), (9, 4), check_invariants=True)

    one, other = (seen({"gradient of model.weight": sparse(rows)}) for rows in ([1, 5], [1, 6]))
    assert check(one, one, None, Numerics.SAME, None).passed
    assert not check(one, other, None, Numerics.SAME, None).passed


def known_of(step):
    found = subject_of(lambda: step)
    for _ in range(2):
        found.run()
    return truth(found)


class Given:
    __slots__ = ("extra", "itself")

    def __init__(self, extra):
        self.extra, self.itself = extra, self


def test_results_are_found_in_whatever_holds_them():
    @dataclass
    class Output:
        logits: torch.Tensor
        rest: object

    model = torch.nn.Linear(2, 2)
    result = Output(torch.ones(2), [Given({"loss": 0.5, "array": np.zeros(3), "steps": 7, "of": model})])
    found = dict(flat(result))
    assert set(found) == {".logits", ".rest[0].extra.loss", ".rest[0].extra.array"}
    assert found[".rest[0].extra.loss"] == 0.5


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support", "ignore:.*quantize_per_tensor")
@pytest.mark.parametrize(
    "made",
    [
        lambda: torch.eye(4).to_sparse(),
        lambda: torch.eye(4).to_sparse_csr(),
        lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(2)], layout=torch.jagged),
        lambda: torch.quantize_per_tensor(torch.ones(4), 0.5, 0, torch.qint8),
        lambda: torch.ones(2, dtype=torch.complex64).conj(),
    ],
    ids=["sparse", "compressed", "nested", "quantized", "conjugate"],
)
def test_tensors_of_every_kind_have_numbers(made):
    assert seen({"result0": made()})["result0"].values.count_nonzero() >= 2


@pytest.mark.parametrize("result", [None, torch.full((3,), torch.nan)])
def test_a_step_that_shows_nothing_to_compare_is_not_treated(result):
    with pytest.raises(CannotDecide, match="return its output or its loss"):
        known_of(lambda: result)


def test_of_a_random_step_only_what_it_returns_can_be_compared():
    layer, x = torch.nn.Linear(4, 4), torch.ones(3, 4)

    def step(loss_of=lambda loss: None):
        with torch.no_grad():
            layer.weight.add_(torch.randn(4, 4))
        return loss_of(layer(x).mean())

    with pytest.raises(CannotDecide):
        known_of(step)
    assert known_of(partial(step, lambda loss: loss.item())).chances


@pytest.mark.parametrize("draw", [random.random, np.random.random, lambda: torch.rand(()).item()])
def test_whoever_draws_a_random_number_is_found_out(draw):
    assert not known_of(lambda: torch.ones(3) * draw()).repeats


def test_numbers_whose_order_means_something_keep_it():
    bag, ids, offsets = torch.nn.EmbeddingBag(9, 4), torch.arange(9), torch.tensor([0, 2, 5])
    found = subject_of(lambda: lambda: bag(ids, offsets))
    truth(found)
    assert any(one is ids for one in found.inputs)
    assert not any(one is offsets for one in found.inputs)


def test_numbers_with_which_only_a_second_step_fails_keep_their_order_too():
    x = torch.arange(5.0)
    twice = x.clone()
    for seed in (INPUTS[0].inputs, INPUTS[0].inputs + 1):
        redraw([twice], seed)
    unfit = twice.tolist()

    def step():
        if x.tolist() == unfit:
            raise ValueError("out of order")
        return x * 2

    found = subject_of(lambda: step)
    assert truth(found).repeats
    assert not any(one is x for one in found.inputs)


def test_what_becomes_infinite_when_shuffled_keeps_its_order():
    gaps = torch.ones(64)
    gaps[0] = 0
    found = subject_of(lambda: lambda: torch.log(gaps[1:]))
    truth(found)
    assert found.inputs == []


def test_a_step_that_refuses_fp64_has_no_reference():
    x = torch.randn(5)

    def step():
        assert x.dtype is torch.float32
        return x * 2

    assert known_of(step).exact is None


def without_fp64(layer, x):
    """A step that does not run in fp64."""

    def step():
        assert x.dtype is not torch.float64
        return layer(x)

    return step


def test_where_fp64_does_not_run_two_bytes_are_measured_by_fp32():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    right = torch.nn.functional.linear(x.bfloat16().double(), *(one.bfloat16().double() for one in layer.parameters()))
    found = subject_of(lambda: without_fp64(layer.bfloat16(), x.bfloat16()))
    found.inputs = []
    (told,) = exact(found, INPUTS[:1], Watched({}, 1))
    assert told["result0"].values == pytest.approx(right.detach().flatten(), rel=1e-5, abs=1e-5)
    assert not truth(found).exact[0]["result0"].values.equal(truth(found).eager[0]["result0"].values)
    assert layer.weight.dtype is torch.bfloat16


def test_and_autocast_by_what_it_would_be_without():
    torch.manual_seed(0)
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    in_fp32 = without_fp64(layer, x)

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            return in_fp32()

    found = subject_of(lambda: step)
    found.inputs = []
    (told,) = exact(found, INPUTS[:1], Watched({}, 1))
    assert told["result0"].values.equal(layer(x).detach().double().flatten())
    assert step().dtype is torch.bfloat16
    assert not torch.is_autocast_enabled("cpu")


def test_where_autocast_is_on_it_is_on_afterwards():
    """Also where the step leaves it for a while, as rotary embeddings do."""
    layer, x = torch.nn.Linear(64, 64), torch.randn(16, 64)
    in_fp32 = without_fp64(layer, x)

    def step():
        with torch.autocast("cpu", enabled=False):
            first = in_fp32()
        return first + in_fp32()

    found = subject_of(lambda: step)
    found.inputs = []
    with torch.autocast("cpu", torch.bfloat16):
        (told,) = exact(found, INPUTS[:1], Watched({}, 1))
        assert torch.is_autocast_enabled("cpu")
        assert in_fp32().dtype is torch.bfloat16
    assert told["result0"].values.equal(2 * layer(x).detach().double().flatten())


def test_a_shake_writes_nowhere_that_anybody_else_reads():
    x = torch.randn(3)
    found = subject_of(lambda: lambda: x.expand(2, 3) * 2)
    twin = x.detach()
    before = twin.clone()
    with preserved(found.origin):
        widen(found, torch.float32, shake=1)
        assert not x.equal(before)
        assert twin.equal(before)


def test_an_idle_optimizer_still_asks_for_the_loss():
    layer, x = torch.nn.Linear(4, 1), torch.randn(8, 4)
    optimizer = torch.optim.LBFGS(layer.parameters(), max_iter=2)

    def loss():
        optimizer.zero_grad()
        value = layer(x).square().mean()
        value.backward()
        return value

    known = known_of(lambda: optimizer.step(loss).item())
    assert {"gradient of model.weight", "result0"} <= known.eager[0].keys()


def test_a_reference_of_another_shape_is_none():
    eager = torch.ones(3)
    assert judged(eager, eager.clone(), torch.ones(4, dtype=torch.float64)).passed


def test_an_optimizer_with_things_of_its_own_in_its_state_is_watched_where_it_has_moments():
    layer, x = torch.nn.Linear(4, 4), torch.randn(2, 4)
    optimizer = torch.optim.AdamW(layer.parameters())
    optimizer.state["counts"] = {"steps": torch.zeros(())}
    optimizer.state["rate"] = 0.1
    known = truth(trained(lambda: layer(x).square().mean(), optimizer))
    assert "exp_avg of model.weight" in known.watched.places
