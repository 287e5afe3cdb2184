"""Every treatment: applied and undone it leaves the same bits, and while in force the same numbers."""

import copy
import logging
import weakref
from dataclasses import dataclass
from types import SimpleNamespace

import pytest
import torch
from torch._dynamo import config, convert_frame
from torch._inductor.utils import run_and_get_code

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.timing.state.reach import reached
from gobrrr.treat.compiling import VERSIONS, patient_compiler
from gobrrr.treat.edit import Edit, strided, swap_on
from gobrrr.treat.optimizers import steps_on_device
from gobrrr.treat.samples import flat
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
from gobrrr.treat.treatments import sdpa_rewrite
from gobrrr.treat.treatments.sdpa_rewrite import calling_attention
from gobrrr.treat.verify import truth, verified
from gobrrr.work import compiler_events
from gobrrr.workload import Workload
from treating import (
    CONVOLUTIONS,
    Signs,
    attention,
    bare,
    classifying,
    containers,
    convolving,
    images,
    inference,
    modelless,
    scaled,
    subject,
    switched,
    training,
)

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo

CUDA_ONLY = {"whole-step-graph", "reduce-overhead", "tf32"}


@dataclass(frozen=True)
class Case:
    treatment: str
    make: object
    sites: tuple[str, ...]


CASES = (
    Case("fused-optimizer", training, ("0",)),
    Case("fused-optimizer", lambda: training(optimizer=torch.optim.SGD, momentum=0.9), ("0",)),
    Case("fused-optimizer", scaled, ("0",)),
    Case("compiled-optimizer", lambda: training(optimizer=torch.optim.RMSprop, momentum=0.9), ("0",)),
    Case("compiled-optimizer", lambda: training(optimizer=torch.optim.NAdam, foreach=True), ("0",)),
    Case("compiled-optimizer", lambda: training(optimizer=Signs), ("0",)),
    Case("compile", training, ("step",)),
    Case("compile", modelless, ("step",)),
    Case("compile", classifying, ("model:", "cross_entropy")),
    Case("compile-loss", classifying, ("cross_entropy",)),
    Case("compile-regions", training, ("model:0", "model:1")),
    Case("compile-regions", classifying, ("model:0", "model:1", "cross_entropy")),
    Case("compile-tuned", lambda: inference(rows=1), ("step",)),
    Case("no-grad", bare, ("step",)),
    Case("bf16-autocast", training, ("model:",)),
    Case("channels-last", images, ("model:0", "model:3")),
    Case("conv-bn-fold", images, ("model:0", "model:1")),
    Case("int8-dynamic", inference, ("model:0.up", "model:1")),
    Case("int8-weight-only", inference, ("model:0.up", "model:1")),
    Case("merged-projections", attention, ("model:0.query+model:0.key+model:0.value",)),
    Case("padded-products", lambda: training(outputs=5), ("model:2",)),
    Case("sdpa-backend", lambda: switched("sdpa"), ("math",)),
    Case("sdpa-rewrite", attention, ("model:0",)),
    Case("sdpa-switch", switched, ("model:",)),
)


def dose(case: Case) -> Dose:
    return Dose(TREATMENTS[case.treatment], case.sites)


def bits(found: Subject) -> list[bytes]:
    """Of everything that the step reaches, in the order of the walk."""
    tensors = [thing for thing in reached(found.origin) if isinstance(thing, torch.Tensor)]
    return [tensor.detach().cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes() for tensor in tensors]


def flags(found: Subject) -> list[object]:
    groups = [group for optimizer in found.optimizers for group in optimizer.param_groups]
    return [{key: value for key, value in group.items() if key != "params"} for group in groups]


def after_a_step(found: Subject) -> list[bytes]:
    """Output and everything that a step changes."""
    with preserved(found.origin):
        torch.manual_seed(3)
        result = found.run()
        own = [one.detach().cpu().numpy().tobytes() for _, one in flat(result)]
        return own + bits(found)


def test_there_is_a_case_for_every_treatment_that_runs_on_a_cpu():
    assert {case.treatment for case in CASES} | CUDA_ONLY >= set(TREATMENTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_applied_and_undone_it_leaves_the_same_bits(case):
    found = subject(case.make())
    before = bits(found), flags(found), after_a_step(found), found.step
    turn = found.become((dose(case),))
    with preserved(found.origin):
        found.run()
    turn.to_before()
    assert (bits(found), flags(found), after_a_step(found), found.step) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_in_force_it_computes_the_same(case):
    found = subject(case.make())
    known = truth(found)
    found.become((dose(case),))
    with preserved(found.origin):
        checked = verified(found, known, found.plan)
    found.end()  # some of it is the whole process's
    assert checked.passed, checked
    assert not checked.weak


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.treatment)
def test_a_fault_in_any_edit_leaves_the_subject_as_it_came(case, monkeypatch):
    found = subject(case.make())
    before = bits(found), flags(found), after_a_step(found), found.step
    found.become((dose(case),))
    edits = len(found.courses[0].edits)
    found.end()
    for failing in {1, (edits + 1) // 2, edits}:
        with monkeypatch.context() as patch:
            patch.setattr(Edit, "swap", failing_at(failing))
            with pytest.raises(RuntimeError, match="injected"):
                found.become((dose(case),))
        assert (bits(found), flags(found), after_a_step(found), found.step) == before


def failing_at(place: int):
    made, count = Edit.swap, iter(range(1, 1000))

    def swap(self: Edit) -> None:
        if next(count) == place:
            raise RuntimeError("injected")
        made(self)

    return swap


def test_every_number_that_counts_steps_is_moved_to_where_the_parameters_are():
    """NAdam has two: its kernels would read the other one where it is not."""
    layer = torch.nn.Linear(2, 2)
    optimizer = torch.optim.NAdam(layer.parameters())
    layer(torch.ones(2)).sum().backward()
    optimizer.step()
    elsewhere = SimpleNamespace(state={layer.weight.to("meta"): optimizer.state[layer.weight]})
    (state,) = elsewhere.state.values()
    swap_on(steps_on_device(elsewhere))
    assert {key for key, value in state.items() if value.device.type == "meta"} == {"step", "mu_product"}


def test_on_a_cpu_nothing_is_promised_of_tf32():
    with pytest.raises(Unfit, match="CUDA device"):
        TREATMENTS["tf32"].kind.sites(SimpleNamespace(is_cuda=False))


def test_a_count_of_steps_is_moved_as_a_fused_kernel_reads_it():
    parameter, state = torch.ones(2, device="meta"), {"step": torch.tensor(3.0, dtype=torch.float64)}
    swap_on(steps_on_device(SimpleNamespace(state={parameter: state})))
    assert state["step"].dtype == torch.float32


def test_a_module_may_call_itself_sparse_and_have_no_weight():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2))
    model.sparse = True
    found = subject(Workload(model, torch.ones(1, 2), torch.Tensor.sum, torch.optim.SGD(model.parameters())))
    assert TREATMENTS["fused-optimizer"].kind.sites(SimpleNamespace(subject=found)) == ("0",)


def test_an_optimizer_of_ones_own_is_not_fused():
    class Mine(torch.optim.AdamW):
        pass

    found = subject(training(optimizer=Mine))
    with pytest.raises(Unfit, match="no fused form"):
        TREATMENTS["fused-optimizer"].kind.sites(SimpleNamespace(subject=found))


CHANNELS_LAST = Dose(TREATMENTS["channels-last"], CONVOLUTIONS)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("to_none", [False, True])
def test_with_channels_last_a_fused_optimizer_finds_all_that_belongs_to_a_weight_in_one_layout(fused, to_none):
    step, optimizer = convolving(to_none=to_none, fused=fused)
    found, weight = subject(step), optimizer.param_groups[0]["params"][0]

    def strides():
        state = [optimizer.state[weight][name] for name in ("exp_avg", "exp_avg_sq")]
        return {one.stride() for one in (weight, weight.grad, *state)}

    before = strides()
    found.become((CHANNELS_LAST,))
    found.run()
    assert strides() == {torch.empty(8, 3, 3, 3).to(memory_format=torch.channels_last).stride()} != before
    found.end()
    found.run()
    assert strides() == before


@pytest.mark.parametrize("fused", [False, True])
def test_moments_that_were_born_with_channels_last_follow_the_weights_back(fused):
    def losses(*plan):
        found = subject_of(lambda: convolving(fused=fused)[0])
        found.become(plan)
        treated = [found.run() for _ in range(3)]
        found.end()
        return treated + [found.run() for _ in range(3)]

    assert losses(CHANNELS_LAST) == pytest.approx(losses(), rel=1e-4)


@pytest.mark.parametrize("fused", [False, True])
def test_state_that_is_loaded_while_channels_are_last_is_laid_like_the_weights(fused):
    def losses(*plan):
        step, optimizer = convolving(fused=fused)
        found = subject(step)
        saved = copy.deepcopy(optimizer.state_dict())
        found.become(plan)
        optimizer.load_state_dict(saved)
        treated = [found.run() for _ in range(3)]
        found.end()
        assert not optimizer._optimizer_load_state_dict_post_hooks
        return treated + [found.run() for _ in range(2)]

    assert losses(CHANNELS_LAST) == pytest.approx(losses(), rel=1e-4)


@pytest.mark.parametrize("heads", [(4, 4), (8, 2), (6, 1)])
@pytest.mark.parametrize("masked", ["none", "bool", "float", "causal"])
def test_attention_of_one_query_spelled_out_is_attention(heads, masked):
    from gobrrr.treat.one_row import spelled_out

    query, key, value = torch.randn(2, heads[0], 1, 8), torch.randn(2, heads[1], 6, 8), torch.randn(2, heads[1], 6, 4)
    masks = {"bool": torch.arange(6).expand(2, 1, 1, 6) < 4, "float": torch.randn(2, heads[0], 1, 6)}
    options = {"attn_mask": masks.get(masked), "is_causal": masked == "causal", "enable_gqa": True}
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, **options)
    torch.testing.assert_close(spelled_out(query, key, value, **options), expected)


@pytest.mark.parametrize("kind", [torch.bool, torch.float32])
def test_a_query_whose_keys_are_all_masked_finds_nothing(kind):
    from gobrrr.treat.one_row import spelled_out

    query, key = torch.randn(2, 4, 1, 8), torch.randn(2, 2, 6, 8)
    seen = torch.tensor([[True] * 6, [False] * 6])[:, None, None]
    mask = seen if kind == torch.bool else torch.zeros(seen.shape).masked_fill(~seen, float("-inf"))
    found = spelled_out(query, key, key, attn_mask=mask, enable_gqa=True)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, key, attn_mask=mask, enable_gqa=True)
    torch.testing.assert_close(found, expected)
    assert found[0].any()
    assert not found[1].any()


def test_a_query_whose_keys_are_all_masked_gives_no_gradients_that_are_no_numbers():
    from gobrrr.treat.one_row import spelled_out

    query, key = torch.randn(2, 4, 1, 8, requires_grad=True), torch.randn(2, 4, 6, 8, requires_grad=True)
    mask = torch.tensor([[True] * 3 + [False] * 3, [False] * 6])[:, None, None]
    attend = torch.nn.functional.scaled_dot_product_attention
    ours, theirs = (
        torch.autograd.grad(function(query, key, key, attn_mask=mask).square().sum(), (query, key))
        for function in (spelled_out, attend)
    )
    torch.testing.assert_close(ours, theirs)


def test_attention_that_is_one_call_is_not_rewritten_whatever_torch_computes_it_by():
    class Called(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=x @ x.mT)

    class Spelled(torch.nn.Module):
        def forward(self, x):
            return (x @ x.mT).softmax(-1) @ x

    class Both(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.called = Called()

        def forward(self, x):
            return self.called((x @ x.mT).softmax(-1) @ x)

    with pytest.warns((DeprecationWarning, FutureWarning), match="torch.jit"):
        script = torch.jit.trace(Called(), torch.randn(1, 2, 4, 8))
    found = subject(Workload(torch.nn.Sequential(Called(), Spelled(), Both(), script), torch.randn(1, 2, 4, 8)))
    assert calling_attention(found) >= {"model:0", "model:2.called"}
    assert calling_attention(found).isdisjoint({"model:1", "model:2", "model:3"})
    assert not any(module._forward_hooks or module._forward_pre_hooks for _, module in found.modules())


@pytest.mark.parametrize("implementation", ["eager", "sdpa"])
def test_what_a_model_has_a_switch_for_is_not_rewritten(implementation, monkeypatch):
    place = SimpleNamespace(module="BertModel.encoder.layer.0.attention.self")
    monkeypatch.setattr(sdpa_rewrite, "grouping", lambda *_: SimpleNamespace(attentions=[SimpleNamespace(output=0)]))
    chart = SimpleNamespace(
        subject=subject(switched(implementation)), ops=[place], case=SimpleNamespace(flow=SimpleNamespace())
    )
    with pytest.raises(Unfit, match="has a switch" if implementation == "eager" else "one call already"):
        TREATMENTS["sdpa-rewrite"].kind.sites(chart)


def test_a_weight_of_one_number_in_many_places_is_left_as_it_is():
    blur = torch.nn.Conv2d(4, 4, 3, groups=4, bias=False)
    blur.weight = torch.nn.Parameter(torch.ones(1, 1, 3, 3).expand(4, 1, 3, 3), requires_grad=False)
    chart = SimpleNamespace(subject=subject(Workload(blur, torch.randn(1, 4, 8, 8))))
    with pytest.raises(Unfit, match="no two-dimensional convolution"):
        TREATMENTS["channels-last"].kind.sites(chart)


def test_a_gradient_that_is_gone_is_kept_by_no_layout():
    weight = torch.nn.Parameter(torch.randn(2, 3, 4, 4))
    weight.grad = torch.ones_like(weight)
    edit = strided(lambda: [weight, *([] if weight.grad is None else [weight.grad])], (48, 1, 12, 3))
    edit.swap()
    gone = weakref.ref(weight.grad)
    weight.grad = None
    assert gone() is None
    edit.swap()
    assert weight.is_contiguous()


@pytest.mark.parametrize("scripted", [True, False])
@pytest.mark.parametrize("records", [True, False])
def test_gradients_that_nobody_records_are_not_done_without(records, scripted):
    model = torch.nn.Linear(4, 4)
    if scripted:
        model = torch.jit.trace(model, torch.ones(2, 4))

    def step():
        with torch.set_grad_enabled(records):
            return model(torch.ones(2, 4))

    chart = SimpleNamespace(trains=False, subject=subject(step))
    if records:
        assert TREATMENTS["no-grad"].kind.sites(chart) == ("step",)
    else:
        with pytest.raises(Unfit, match="records no gradients"):
            TREATMENTS["no-grad"].kind.sites(chart)


MODEL, X = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)), torch.ones(8, 16)
OPTIMIZER = torch.optim.SGD(MODEL.parameters(), lr=0.1)


def of_a_script():
    """All that it knows are globals, and the compiler breaks off at once."""
    OPTIMIZER.zero_grad()
    loss = MODEL(X).square().mean()
    loss.backward()
    OPTIMIZER.step()
    return loss.detach()


def test_a_step_of_a_script_is_compiled_though_its_frames_hold_no_tensor():
    found, sees = subject(of_a_script), convert_frame.has_tensor_in_frame
    torch.compiler.reset()
    found.become((Dose(TREATMENTS["compile"], ("step",)),))
    _, code = run_and_get_code(found.run)
    found.end()
    assert len(code) == 2, "its forward and its backward pass"
    assert convert_frame.has_tensor_in_frame is sees


def test_regions_are_the_repeated_blocks_and_what_stands_beside_them():
    from gobrrr.treat.treatments.compile_regions import regions

    nn = torch.nn
    layers = nn.ModuleList(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3))
    head = nn.Sequential(nn.Linear(2, 2), nn.LayerNorm(2))
    model = nn.ModuleDict({"encoder": nn.ModuleDict({"layers": layers}), "head": head, "out": nn.Linear(2, 2)})
    assert regions(model) == ["encoder.layers.0", "encoder.layers.1", "encoder.layers.2", "head"]
    assert regions(nn.Linear(2, 2)) == []


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_a_script_has_no_blocks_that_can_be_compiled():
    from gobrrr.treat.treatments.compile_regions import regions
    from treating import Block

    model = torch.nn.Sequential(Block(), Block()).eval()
    assert regions(torch.jit.trace(model, torch.ones(1, 16))) == []


@pytest.mark.parametrize(
    ("name", "sites"), [("compile", ("model:",)), ("compile-regions", ("model:0", "model:1"))], ids=["model", "blocks"]
)
def test_what_is_made_of_torchs_own_modules_alone_is_compiled_too(name, sites):
    """Dynamo passes over a Sequential, and over all that is in it."""
    torch.compiler.reset()
    found = subject(containers())
    known, start = truth(found), compiler_events.mark()
    found.become((Dose(TREATMENTS[name], sites),))
    found.run()
    assert compiler_events.since(start) is not None
    assert verified(found, known, found.plan).passed


def test_blocks_beside_which_some_are_scripts_are_compiled():
    model = torch.nn.Sequential(*(torch.jit.trace(torch.nn.Linear(4, 4), torch.ones(1, 4)) for _ in range(2)))
    found = subject(Workload(model.eval(), torch.randn(4, 4)))
    known = truth(found)
    found.become((Dose(TREATMENTS["compile-regions"], ("model:0", "model:1")),))
    assert verified(found, known, found.plan).passed


def test_what_is_cast_with_channels_last_is_cast_when_that_is_undone():
    made = images()
    found = subject(made)
    turn = found.become((Dose(TREATMENTS["channels-last"], ("model:0", "model:3")),))
    made.model.bfloat16()
    turn.to_before()
    assert {one.dtype for one in made.model.parameters()} == {torch.bfloat16}


def test_tf32_stays_on_until_the_last_who_wants_it_is_gone():
    one, other = subject(inference()), subject(inference())
    before = torch.get_float32_matmul_precision()
    for each in (one, other):
        each.become((Dose(TREATMENTS["tf32"], ("torch",)),))
    one.end()
    assert torch.get_float32_matmul_precision() == "high"
    other.end()
    assert torch.get_float32_matmul_precision() == before


def test_blocks_that_are_compiled_one_by_one_have_room_for_more_versions_as_long_as_they_are():
    found, limit = subject(training()), config.recompile_limit
    with patient_compiler():
        turn = found.become((Dose(TREATMENTS["compile-regions"], ("model:0", "model:1")),))
    assert config.recompile_limit == limit + 2 * VERSIONS
    turn.to_before()
    assert config.recompile_limit == limit


def test_tf32_is_switched_on_and_off():
    before = torch.get_float32_matmul_precision()
    (edit,) = TREATMENTS["tf32"].edits(None, ("torch",))
    edit.swap()
    assert torch.get_float32_matmul_precision() == "high"
    edit.swap()
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize("place", ["after the convolution", "before the normalization"])
def test_where_a_hook_stands_between_nothing_is_folded(place):
    found = subject(images())
    sites = ("model:0", "model:1")
    model, hook = found.module("model:"), lambda *_: None
    (model[0].register_forward_hook if place.startswith("after") else model[1].register_forward_pre_hook)(hook)
    with pytest.raises(Unfit, match="hook"):
        found.become((Dose(TREATMENTS["conv-bn-fold"], sites),))
    assert not found.plan
    with pytest.raises(Unfit, match="no batch normalization"):
        TREATMENTS["conv-bn-fold"].kind.sites(SimpleNamespace(trains=False, subject=found))


def test_weights_that_are_computed_in_each_step_are_no_sites_and_the_others_are():
    from torch.nn.utils import parametrizations, prune

    made = Workload(torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(3))).eval(), torch.randn(4, 16))
    prune.l1_unstructured(made.model[0], "weight", amount=0.5)
    parametrizations.weight_norm(made.model[1])
    chart = SimpleNamespace(trains=False, subject=subject(made))
    assert TREATMENTS["int8-dynamic"].kind.sites(chart) == ("model:2",)
    normed = images()
    parametrizations.weight_norm(normed.model[0])
    with pytest.raises(Unfit, match="no batch normalization"):
        TREATMENTS["conv-bn-fold"].kind.sites(SimpleNamespace(trains=False, subject=subject(normed)))


def test_a_normalization_that_reads_a_convolution_is_folded_into_it():
    from gobrrr.treat.treatments.conv_bn_fold import folding_pairs

    assert folding_pairs(subject(images())) == [("model:0", "model:1")]
    assert folding_pairs(subject(training())) == []


@pytest.mark.parametrize("asked", [logging.NOTSET, logging.WARNING, logging.DEBUG])
def test_the_compilers_warnings_are_kept_back_unless_somebody_asked_for_more(asked):
    logger = logging.getLogger("torch._dynamo")
    before = logger.level
    logger.setLevel(asked)
    try:
        with patient_compiler():
            assert logger.level == (asked if asked == logging.DEBUG else logging.ERROR)
        assert logger.level == asked
    finally:
        logger.setLevel(before)
