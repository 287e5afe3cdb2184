"""A loss that is no part of what is compiled: found, compiled alone, and torch's own again afterwards."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch._dynamo import config
from torch._dynamo.utils import counters
from torch.nn import functional

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.treat import losses
from gobrrr.treat.compiling import VERSIONS, patient_compiler
from gobrrr.treat.cross_entropy import LEAST, LOSS
from gobrrr.treat.fusing import compiled_here
from gobrrr.treat.losses import gained_s, loss_beside, of_the_loss
from gobrrr.treat.search import graphed_exam
from gobrrr.treat.subject import examined_subject
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
from gobrrr.treat.treatments.compile_whole import whole_or_models
from gobrrr.treat.verify import truth, verified
from gobrrr.work.count import count_workload
from gobrrr.work.counter import dispatched_program
from gobrrr.work.lineage import is_generated
from gobrrr.work.op import Op, OpClass, Phase
from gobrrr.work.registry import canonical
from test_treat_forecasts import chart as recorded
from treating import Block, classifying, subject, training

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo

CLASSES = LEAST // 8

GPT2 = {"logits": frozenset({(8 * 1024, 50257)})}
"""What its step asks for the loss of."""

ALONE = Dose(TREATMENTS["compile-loss"], (LOSS,))
BLOCKS = Dose(TREATMENTS["compile-regions"], ("model:0", "model:1", LOSS))


@pytest.fixture(autouse=True)
def _fresh():
    torch.compiler.reset()
    counters.clear()


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
        self.blocks, self.head = nn.ModuleList(Block() for _ in range(2)), nn.Linear(16, CLASSES)

    def forward(self, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return functional.cross_entropy(self.head(x), right)


def losing():
    torch.manual_seed(0)
    model, batch = Losing(), (torch.randn(8, 16), torch.randint(CLASSES, (8,)))
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
    model, x, right = nn.Linear(16, CLASSES), torch.randn(8, 16), torch.randint(CLASSES, (8,))

    def step() -> torch.Tensor:
        loss = functional.nll_loss(functional.log_softmax(model(x), -1), right)
        loss.backward()
        return loss.detach()

    return step


def smoothed():
    torch.manual_seed(0)
    model, x, right = nn.Linear(16, CLASSES), torch.randn(8, 16), torch.randint(CLASSES, (8,))

    def step() -> torch.Tensor:
        loss = functional.cross_entropy(model(x), right, label_smoothing=0.1)
        loss.backward()
        return loss.detach()

    return step


def distilling():
    """From a teacher of more classes; and its own loss is torch's."""
    torch.manual_seed(0)
    student, x, right = nn.Linear(16, CLASSES + 20), torch.randn(8, 16), torch.randint(CLASSES, (8,))
    told = torch.randn(8, 20).softmax(-1)

    def step() -> torch.Tensor:
        classes, others = student(x).split([CLASSES, 20], -1)
        loss = functional.cross_entropy(classes, right) + functional.kl_div(others.log_softmax(-1), told)
        loss.backward()
        return loss.detach()

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


@pytest.mark.parametrize("make", [written_out, smoothed])
def test_a_loss_that_would_not_be_generated_is_not_promised(make):
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


@pytest.mark.filterwarnings("ignore:reduction. 'mean' divides the total loss:UserWarning")
def test_a_softmax_that_is_not_of_the_loss_is_not_promised():
    chart = charted(distilling)
    of_loss = of_the_loss(chart)
    found = {op.inputs[0].shape for op in chart.ops if canonical(op.name) == "_log_softmax" and of_loss(op)}
    assert found == {(8, CLASSES)}


def test_casts_of_logits_and_of_their_gradient_are_part_of_the_loss():
    """GPT-2 under autocast: its logits are bf16, and the loss reads fp32."""
    chart = recorded("gpt2", **GPT2)
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
    chart = recorded("gpt2", **GPT2)
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
    chart = recorded("gpt2", **GPT2)
    of_loss = of_the_loss(chart)
    groups = chart.fused_groups(of_loss)
    assert [op.phase for one in groups for op in (chart.ops[one.group.ops[0]],)] == [Phase.FORWARD, Phase.BACKWARD]
    assert not of_loss(chart.ops[groups[0].group.ops[0]])


def test_of_a_group_that_is_partly_inside_all_may_be_gained_that_was_taken_inside():
    """The rest of it has its own kernels, whose time was never counted."""
    chart = recorded("gpt2", **GPT2)
    groups = [one.group.ops for one in chart.case.fused.groups if len(one.group.ops) > 1]
    plain = [ops for ops in groups if not any(chart.ops[op].cls is OpClass.CONTRACTION for op in ops)]
    first = {id(chart.ops[ops[0]]) for ops in plain}

    def inside(op: Op) -> bool:
        return id(op) in first

    took_s = sum(one.seconds for one in chart.kernels(inside))
    assert took_s > 0
    assert chart.fusable_s(inside)[1] == pytest.approx(took_s)


@pytest.mark.parametrize(("name", "site"), [("compile-regions", "model:transformer.h.0"), ("compile", "model:")])
def test_models_and_blocks_with_the_loss_are_promised_more_than_without(name, site):
    """In a graph: what counts is the device's time. GPT-2's own loss is beside its blocks; as if it were beside it."""
    eager = recorded("gpt2", **GPT2)
    of_loss = of_the_loss(eager)
    outside = tuple(replace(op, module="") if of_loss(op) else op for op in eager.ops)
    exam = replace(eager.exam, program=replace(eager.exam.program, ops=outside))
    chart = replace(eager, exam=graphed_exam(exam, eager.case.busy_s))
    kind = TREATMENTS[name].kind
    assert kind.forecast(chart, (site, LOSS)).speedup > 1.05 * kind.forecast(chart, (site,)).speedup


def test_a_loss_is_compiled_beside_others_where_that_saves_more_than_it_costs_to_call():
    chart = recorded("gpt2", **GPT2)
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
    assert counters["stats"]["unique_graphs"] == 2, "loss and gradient"
    assert verified(found, right, found.plan).passed
    turn.to_before()


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


def test_whoever_calls_the_model_has_its_loss_compiled():
    """As in production, where nobody knows the step: in the model's forward, or beside it."""
    model, x, right = nn.Linear(16, CLASSES), torch.randn(8, 16), torch.randint(CLASSES, (8,))
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
