"""A loss that is no part of what is compiled: found, compiled alone, and torch's own again afterwards."""

import pickle
import threading
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo import config
from torch._dynamo.utils import counters
from torch._inductor import compile_fx
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.treat import losses
from gobrrr.treat.compiling import VERSIONS, patient_compiler
from gobrrr.treat.cross_entropy import LOSS, standing, standing_for_all
from gobrrr.treat.edit import in_force, swap_off, swap_on
from gobrrr.treat.fusing import compiled_here
from gobrrr.treat.loss_head import by_its_parts, loss_by_its_parts
from gobrrr.treat.losses import gained_s, loss_beside, of_the_loss
from gobrrr.treat.search import graphed_exam
from gobrrr.treat.subject import examined_subject, subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
from gobrrr.treat.treatments.compile_whole import whole_or_models
from gobrrr.treat.verify import truth, verified
from gobrrr.work.count import count_workload
from gobrrr.work.counter import dispatched_program
from gobrrr.work.lineage import is_generated
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.registry import canonical
from test_treat_forecasts import chart as recorded
from test_treat_forecasts import known
from treating import Block, classifying, subject, training

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo

ORIGINAL = functional.cross_entropy

ALONE = Dose(TREATMENTS["compile-loss"], (LOSS,))
BLOCKS = Dose(TREATMENTS["compile-regions"], ("model:0", "model:1", LOSS))


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    counters.clear()
    assert functional.cross_entropy is ORIGINAL, "as others have left it"
    yield
    assert functional.cross_entropy is ORIGINAL


@pytest.fixture
def worthwhile(monkeypatch):
    """Whatever it has to gain: these are small."""
    monkeypatch.setattr(losses, "gained_s", lambda _: 1.0)


def charted(make):
    """As an Exam of an eager step would have it."""
    ops = count_workload(make, real=True).ops
    exam = SimpleNamespace(ran=ops, dispatched=())
    return SimpleNamespace(ops=ops, exam=exam, subject=subject(make()), is_cuda=False)


def in_modules(op: Op) -> bool:
    return bool(op.module)


class Losing(nn.Module):
    """Computes its own loss, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(16, 24)

    def forward(self, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x), right)


def losing():
    torch.manual_seed(0)
    model, batch = Losing(), (torch.randn(8, 16), torch.randint(24, (8,)))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


class Counting:
    """A step that keeps books: its models are compiled, and not it."""

    def __init__(self) -> None:
        self.workload, self.steps = classifying(), 0

    def __call__(self) -> torch.Tensor:
        self.steps += 1
        return self.workload.step()


def written_out():
    """The same loss, not asked for by its name."""
    torch.manual_seed(0)
    model, x, right = nn.Linear(16, 24), torch.randn(8, 16), torch.randint(24, (8,))

    def step() -> torch.Tensor:
        loss = functional.nll_loss(functional.log_softmax(model(x), -1), right)
        loss.backward()
        return loss.detach()

    return step


def by_another_name():
    """Held by who calls it: nobody can stand under that name."""
    torch.manual_seed(0)
    model, x, right = nn.Linear(16, 24), torch.randn(8, 16), torch.randint(24, (8,))

    def step(loss=ORIGINAL) -> torch.Tensor:
        found = loss(model(x), right)
        found.backward()
        return found.detach()

    return step


@pytest.mark.usefixtures("worthwhile")
def test_a_loss_beside_the_model_is_a_site_and_one_inside_of_it_is_none():
    assert loss_beside(charted(classifying), in_modules) == (LOSS,)
    assert loss_beside(charted(losing), in_modules) == ()
    assert loss_beside(charted(training), in_modules) == ()


def test_a_loss_that_costs_more_than_it_gains_is_left_out(monkeypatch):
    monkeypatch.setattr(losses, "gained_s", lambda _: -1e-6)
    assert loss_beside(charted(classifying), in_modules) == ()


@pytest.mark.usefixtures("worthwhile")
def test_a_loss_that_is_compiled_already_is_no_site():
    chart = charted(classifying)
    chart.exam.ran = tuple(op for op in chart.ops if "softmax" not in op.name)
    assert loss_beside(chart, in_modules) == ()


@pytest.mark.parametrize("make", [written_out, by_another_name])
def test_a_loss_that_nobody_can_stand_for_is_not_promised(make):
    chart = charted(make)
    with pytest.raises(Unfit, match="cross_entropy"):
        TREATMENTS["compile-loss"].kind.sites(chart)


@pytest.mark.usefixtures("worthwhile")
def test_blocks_are_compiled_with_the_loss_that_their_model_computes():
    sites = TREATMENTS["compile-regions"].kind.sites(charted(losing))
    assert sites == ("model:blocks.0", "model:blocks.1", LOSS)


@pytest.mark.usefixtures("worthwhile")
def test_of_a_step_that_keeps_books_models_are_compiled_and_the_loss():
    assert whole_or_models(charted(Counting)) == ("model:", LOSS)


def test_casts_of_logits_and_of_their_gradient_are_part_of_the_loss():
    """GPT-2 under autocast: its logits are bf16, and the loss reads fp32."""
    chart = known("gpt2")
    of_loss = of_the_loss(chart)
    found = [op for op in chart.ops if of_loss(op)]
    casts = [op for op in found if canonical(op.name) == "_to_copy"]
    logits = {op.inputs[0].numel for op in found if canonical(op.name) == "_log_softmax"}
    assert {op.phase for op in casts} == {Phase.FORWARD, Phase.BACKWARD}
    assert {op.inputs[0].numel for op in casts} == logits


def test_the_loss_of_gpt2_is_promised_all_but_the_passes_that_it_needs():
    """Logits of 8 × 1024 × 50257 are read once, and read and written once more, in bf16; and not all of the bandwidth
    is reached. On an H200 the kernels of its loss and the casts around it took 5.4 ms.
    """
    chart = recorded("gpt2")
    of_loss = of_the_loss(chart)
    logits = next(op.inputs[0] for op in chart.ops if canonical(op.name) == "_log_softmax")
    took_s = sum(one.seconds for one in chart.kernels(of_loss))
    passes_s = 3 * 2 * logits.numel / chart.exam.ceilings.dram_bytes_per_s
    likely_s, most_s = chart.fusable_s(of_loss)
    assert took_s == pytest.approx(5.4e-3, rel=0.01)
    assert took_s - 3 * passes_s < likely_s < took_s - passes_s
    assert likely_s <= most_s <= took_s


def test_a_loss_that_joins_a_product_is_not_promised_for_nothing():
    """The group of its forward pass begins with the product that makes the logits, which is none of the loss's: what is
    left of the group has to be done all the same.
    """
    chart = recorded("gpt2")
    of_loss = of_the_loss(chart)
    groups = chart.fused_groups(of_loss)
    assert [op.phase for one in groups for op in (chart.ops[one.group.ops[0]],)] == [Phase.FORWARD, Phase.BACKWARD]
    assert not of_loss(chart.ops[groups[0].group.ops[0]])


def test_of_a_group_that_is_partly_inside_all_may_be_gained_that_was_taken_inside():
    """The rest of it has its own kernels, whose time was never counted."""
    chart = recorded("gpt2")
    groups = [one.group.ops for one in chart.case.fused.groups if len(one.group.ops) > 1]
    plain = [ops for ops in groups if not any(chart.ops[op].cls is OpClass.CONTRACTION for op in ops)]
    first = {id(chart.ops[ops[0]]) for ops in plain}

    def inside(op: Op) -> bool:
        return id(op) in first

    took_s = sum(one.seconds for one in chart.kernels(inside))
    assert took_s > 0
    assert chart.fusable_s(inside)[1] == pytest.approx(took_s)


def test_blocks_with_the_loss_are_promised_more_than_without():
    chart = replace(recorded("gpt2"), exam=graphed_exam(recorded("gpt2").exam, recorded("gpt2").case.busy_s))
    kind, blocks = TREATMENTS["compile-regions"].kind, ("model:transformer.h.0",)
    assert kind.forecast(chart, (*blocks, LOSS)).speedup > 1.05 * kind.forecast(chart, blocks).speedup


def test_a_loss_is_compiled_beside_others_where_that_saves_more_than_it_costs_to_call():
    chart = recorded("gpt2")
    assert 3e-3 < gained_s(chart) < 5.4e-3
    small = tuple(replace(one, seconds=one.seconds / 1000) for one in chart.exam.kernels)
    assert gained_s(replace(chart, exam=replace(chart.exam, kernels=small))) < 0


@pytest.mark.parametrize("make", [classifying, losing, Counting], ids=lambda make: make.__name__)
def test_compiled_alone_it_computes_the_same_and_nothing_else_is_compiled(make):
    found = subject(make())
    right = truth(found)
    turn = found.become((ALONE,))
    with preserved(found.origin):
        found.run()
    assert counters["stats"]["unique_graphs"] == 1
    assert verified(found, right, found.plan).passed
    turn.to_before()


def with_compiled_loss(step):
    """What a step gives whose loss is compiled alone."""
    found = subject_of(lambda: step)
    turn = found.become((ALONE,))
    try:
        return found.run()
    finally:
        turn.to_before()


def test_within_what_is_compiled_it_is_torchs_own():
    graphs = []

    def backend(graph, _inputs):
        graphs.append([node.target for node in graph.graph.nodes])
        loss_by_its_parts(graph.graph)
        graphs.append([node.target for node in graph.graph.nodes])
        return graph.forward

    logits, right = torch.randn(8, 24), torch.randint(24, (8,))
    whole = torch.compile(lambda: functional.cross_entropy(logits * 2, right), backend=backend, fullgraph=True)
    torch.testing.assert_close(with_compiled_loss(whole), ORIGINAL(logits * 2, right))
    before, after = graphs
    assert ORIGINAL in before
    assert by_its_parts in after


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_compilers_that_trace_it_once_more_find_torchs_own(backend):
    """Smoothed it is none of those that we write by its parts: torch's function is called while it is traced."""
    logits, right = torch.randn(8, 24, requires_grad=True), torch.randint(24, (8,))
    whole = torch.compile(lambda: functional.cross_entropy(logits * 2, right, label_smoothing=0.1), backend=backend)
    result = with_compiled_loss(whole)
    result.backward()
    expected = ORIGINAL(logits * 2, right, label_smoothing=0.1)
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(logits.grad, *torch.autograd.grad(expected, logits))


def test_transforms_of_functions_go_through_it():
    logits, right = torch.randn(8, 24), torch.randint(24, (8,))
    each = torch.func.vmap(torch.func.grad(lambda row, one: functional.cross_entropy(row[None], one[None])))
    torch.testing.assert_close(with_compiled_loss(lambda: each(logits, right)), each(logits, right))


@pytest.mark.parametrize(
    "how",
    [
        {"reduction": "sum"},
        {"reduction": "none"},
        {"ignore_index": 3},
        {"label_smoothing": 0.1},
        {"weight": torch.linspace(0.5, 2, 24)},
    ],
    ids=lambda how: next(iter(how)),
)
@pytest.mark.parametrize("places", [(), (5,)], ids=["rows", "pictures"])
def test_whatever_it_is_asked_it_computes_the_same(how, places):
    logits, right = torch.randn(8, 24, *places, requires_grad=True), torch.randint(24, (8, *places))

    def step():
        result = functional.cross_entropy(logits, right, **how)
        return result.detach(), torch.autograd.grad(result.sum(), logits)

    torch.testing.assert_close(with_compiled_loss(step), step())
    assert counters["stats"]["unique_graphs"] == 1


def asked():
    """What is answered to who asks for a loss by its name."""
    return functional.cross_entropy(torch.randn(8, 24), torch.randint(24, (8,)))


def test_it_stands_there_until_it_is_ended_whatever_it_raises():
    def fails(*_):
        raise ValueError("no loss")

    with in_force([standing(lambda *_: 1.0)]):
        assert [asked(), asked()] == [1.0, 1.0]
    assert functional.cross_entropy is ORIGINAL
    with in_force([standing(fails)]):
        for _ in range(2):
            with pytest.raises(ValueError, match="no loss"):
                asked()
    assert functional.cross_entropy is ORIGINAL


def test_ended_while_it_is_asked_it_does_not_come_back():
    edit = standing(lambda *_: swap_off([edit]))
    swap_on([edit])
    asked()
    assert functional.cross_entropy is ORIGINAL


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_the_last_who_came_answers_and_then_the_one_who_is_left(first):
    """As of two models with a prescription each, undone in whichever order; or of a plan that compiles once more."""
    both = [swap_on(standing_for_all(lambda *_, number=number: number)) for number in (1.0, 2.0)]
    assert asked() == 2.0
    swap_off(both[first])
    assert asked() == (2.0, 1.0)[first]
    swap_off(both[1 - first])
    assert functional.cross_entropy is ORIGINAL


def test_a_search_hears_a_loss_that_something_else_stands_for():
    with in_force(standing_for_all(ORIGINAL)):
        there = functional.cross_entropy
        assert losses.is_asked_for(subject(classifying()))
        assert functional.cross_entropy is there


def test_what_is_computed_once_more_from_another_thread_is_the_same_loss():
    """As backward passes on a GPU do with what was checkpointed."""
    heard = []
    with in_force([standing(lambda *_: 1.0)]):
        other = threading.Thread(target=lambda: heard.append(asked()))
        other.start()
        other.join()
    assert heard == [1.0]


def test_what_a_program_puts_around_it_stays_and_is_asked():
    asked_of = []
    with in_force([standing(lambda *_: 1.0)]):
        there = functional.cross_entropy

        def around(*args):
            asked_of.append(args)
            return there(*args)

        functional.cross_entropy = around
        assert [asked(), asked()] == [1.0, 1.0]
    assert functional.cross_entropy is around
    assert asked() != 1.0, "what was ended answers no more"
    assert len(asked_of) == 3
    functional.cross_entropy = ORIGINAL


def test_one_that_was_kept_is_torchs_own_when_it_has_ended():
    with in_force([standing(lambda *_: 1.0)]):
        kept = functional.cross_entropy
    logits, right = torch.randn(8, 24), torch.randint(24, (8,))
    with in_force([standing(lambda *_: 2.0)]):
        torch.testing.assert_close(kept(logits, right), ORIGINAL(logits, right))
        assert asked() == 2.0, "and another in its place stays"


def test_who_wants_a_tangent_has_it():
    logits, right, tangent = torch.randn(8, 24), torch.randint(24, (8,)), torch.randn(8, 24)

    def step():
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(logits, tangent)
            return forward_ad.unpack_dual(functional.cross_entropy(dual, right)).tangent

    torch.testing.assert_close(with_compiled_loss(step), step())


def test_targets_of_other_types_are_known_as_eager_knows_them():
    logits, right = torch.randn(8, 24), torch.randint(24, (8,), dtype=torch.uint8)
    torch.testing.assert_close(
        with_compiled_loss(lambda: functional.cross_entropy(logits, right)), ORIGINAL(logits, right)
    )


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("how", ["trace", "script"])
def test_a_loss_is_traced_and_scripted_as_torchs_own(how):
    batch = torch.randn(8, 24), torch.randint(24, (8,))
    make = torch.jit.script if how == "script" else lambda loss: torch.jit.trace(loss, batch)
    torch.testing.assert_close(with_compiled_loss(lambda: make(nn.CrossEntropyLoss())(*batch)), ORIGINAL(*batch))


def test_a_default_device_is_no_reason_to_ask_for_another():
    with torch.device("cpu"):
        assert losses.is_asked_for(subject(classifying()))
        with in_force([standing(lambda *_: 1.0)]):
            assert asked() == 1.0


def test_a_loss_that_is_computed_once_more_for_its_gradient_is_the_same():
    model, x, right = nn.Linear(16, 24), torch.randn(8, 16), torch.randint(24, (8,))
    expected = torch.autograd.grad(functional.cross_entropy(model(x), right), model.weight)

    def step():
        loss = checkpoint(lambda rows: functional.cross_entropy(model(rows), right), x, use_reentrant=False)
        return torch.autograd.grad(loss, model.weight)

    torch.testing.assert_close(with_compiled_loss(step), expected)


def test_a_model_can_be_saved_while_its_loss_is_compiled():
    model = Losing()
    assert with_compiled_loss(lambda: len(pickle.dumps(model))) > 0


class Ours(torch.Tensor):
    """Overrides torch's own by what it is."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "handled" if func is ORIGINAL else super().__torch_function__(func, types, args, kwargs)


@pytest.mark.parametrize("by_name", [True, False])
def test_who_overrides_torchs_own_is_asked(by_name):
    logits, right = torch.randn(8, 24).as_subclass(Ours), torch.randint(24, (8,))

    def step():
        if by_name:
            return functional.cross_entropy(input=logits, target=right)
        return functional.cross_entropy(logits, right)

    with in_force([standing(lambda *_, **__: 1.0)]):
        assert step() == "handled"


def test_who_traces_finds_torchs_own():
    def step(logits, right):
        return functional.cross_entropy(logits, right)

    with in_force([standing(lambda *_: 1.0)]):
        traced = make_fx(step)(torch.randn(8, 24), torch.randint(24, (8,)))
    assert any("log_softmax" in str(node.target) for node in traced.graph.nodes)


def test_who_listens_to_ops_hears_torchs_own():
    heard = []

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            heard.append(func)
            return func(*args, **(kwargs or {}))

    with in_force([standing(lambda *_: 1.0)]), Ops():
        assert asked() != 1.0
    assert torch.ops.aten._log_softmax.default in heard


@pytest.mark.parametrize("dose", [ALONE, BLOCKS], ids=lambda dose: dose.treatment.name)
def test_what_is_counted_of_a_treated_step_is_what_it_does(dose):
    found = subject(classifying())
    turn = found.become((dose,))
    with patient_compiler(), preserved(found.origin):
        found.run()
        ops = dispatched_program(found.run).ops
    turn.to_before()
    names = {canonical(op.name) for op in ops}
    assert any(is_generated(op) for op in ops)
    assert not names & {"_log_softmax", "nll_loss_forward"}


@pytest.mark.parametrize("dose", [ALONE, BLOCKS], ids=lambda dose: dose.treatment.name)
def test_compiled_it_is_written_by_its_parts(dose, monkeypatch):
    seen = []
    compile_as_ever = compile_fx.compile_fx

    def noted(graph, *args, **kwargs):
        seen.extend(node.target for node in getattr(graph, "graph", SimpleNamespace(nodes=())).nodes)
        return compile_as_ever(graph, *args, **kwargs)

    monkeypatch.setattr(compile_fx, "compile_fx", noted)
    found = subject(classifying())
    turn = found.become((dose,))
    with patient_compiler(), preserved(found.origin):
        found.run()
    turn.to_before()
    assert by_its_parts in seen
    assert ORIGINAL not in seen


def test_whoever_calls_the_model_has_its_loss_compiled():
    """As in production, where nobody knows the step: in the model's forward, or beside it."""
    model, x, right = nn.Linear(16, 24), torch.randn(8, 16), torch.randint(24, (8,))
    found = examined_subject(lambda: None, lambda: model)
    turn = found.become((ALONE,))
    got = nn.CrossEntropyLoss()(model(x), right)
    assert counters["stats"]["unique_graphs"] == 1
    turn.to_before()
    torch.testing.assert_close(got, nn.CrossEntropyLoss()(model(x), right))


def test_a_compiled_model_and_its_loss_have_versions_of_their_own():
    found = subject(classifying())
    limit = config.recompile_limit
    turn = found.become((Dose(TREATMENTS["compile"], ("model:", LOSS)),))
    assert config.recompile_limit == limit + 2 * VERSIONS
    turn.to_before()
    assert config.recompile_limit == limit


def test_a_loss_alone_is_no_compiled_step():
    found = subject(classifying())
    turn = found.become((ALONE,))
    assert not compiled_here(found), "for graphs of a compiler's own, or products that it would compute once"
    turn.to_before()
