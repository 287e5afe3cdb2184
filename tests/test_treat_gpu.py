"""Treatments that only a CUDA device can take: captured steps compute what steps compute."""

from dataclasses import replace

import pytest
import torch

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.timing.state import preserved
from gobrrr.timing.steady import CUDA_STEP_EFFORT
from gobrrr.treat.compiling import patient_compiler
from gobrrr.treat.cross_entropy import LEAST, LOSS
from gobrrr.treat.edit import Edit
from gobrrr.treat.launched import launched
from gobrrr.treat.memory import peak_bytes, private_pools
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treating import treat
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.verify import truth, verified
from gobrrr.workload import Workload
from test_treat_numerics import trained
from test_treat_treatments import after_a_step, bits, failing_at, flags
from treating import Block, Signs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"),
    pytest.mark.filterwarnings("ignore:TensorFloat32 tensor cores:UserWarning"),
]

GRAPH = Dose(TREATMENTS["whole-step-graph"], ("step",))
FUSED = Dose(TREATMENTS["fused-optimizer"], ("0",))
REGIONS = Dose(TREATMENTS["compile-regions"], ("model:0", "model:1"))
WHOLE = Dose(TREATMENTS["compile"], ("step",))
UPDATE = Dose(TREATMENTS["compiled-optimizer"], ("0",))


def training(dropout: float = 0.0, optimizer=torch.optim.AdamW) -> Workload:
    torch.manual_seed(0)
    nn = torch.nn
    model = nn.Sequential(Block(64, dropout), Block(64, dropout), nn.Linear(64, 4)).cuda()
    made = optimizer(model.parameters(), lr=1e-2)
    return Workload(model, torch.randn(8, 64, device="cuda"), loss=lambda out: out.square().mean(), optimizer=made)


def warm(made):
    found = subject_of(lambda: made)
    for _ in range(3):
        found.run()
    return found


@pytest.mark.parametrize("optimizer", [torch.optim.AdamW, torch.optim.Adam, torch.optim.SGD])
@pytest.mark.parametrize("dropout", [0.0, 0.1])
@pytest.mark.parametrize("plan", [(GRAPH,), (FUSED, GRAPH), (FUSED, REGIONS, GRAPH), (FUSED, WHOLE, GRAPH)])
def test_a_captured_step_computes_what_the_step_computes(plan, dropout, optimizer):
    found = warm(training(dropout, optimizer))
    known = truth(found)
    found.become(plan)
    with preserved(found.origin):
        checked = verified(found, known, found.plan)
    assert checked.passed, checked


@pytest.mark.parametrize("optimizer", [torch.optim.RMSprop, torch.optim.NAdam, Signs])
@pytest.mark.parametrize("plan", [(UPDATE,), (UPDATE, WHOLE), (UPDATE, WHOLE, GRAPH)])
def test_a_compiled_optimizer_computes_what_the_optimizer_computes(plan, optimizer):
    if optimizer is Signs and GRAPH in plan:
        pytest.skip("nobody knows whether it can be captured")
    found = warm(training(optimizer=optimizer))
    known, before = truth(found), (bits(found), flags(found))
    turn = found.become(plan)
    with preserved(found.origin):
        checked = verified(found, known, found.plan)
    assert checked.passed, checked
    turn.to_before()
    assert (bits(found), flags(found)) == before


def test_a_graph_reads_rates_that_are_set_as_numbers():
    made, plain = training(), training()
    found = warm(made)
    for _ in range(3):
        plain.step()
    found.become((GRAPH,))
    for rate in (1e-2, 1e-3, 0.0, 5e-3):
        for one in (made, plain):
            one.optimizer.param_groups[0]["lr"] = rate
        ours, theirs = float(found.run()), float(plain.step())
        assert ours == pytest.approx(theirs, rel=1e-4)


@pytest.mark.parametrize("plan", [(FUSED,), (GRAPH,), (FUSED, GRAPH)])
def test_counts_of_steps_are_saved_where_the_untreated_optimizer_has_them(plan):
    made, plain = training(), training()
    found = warm(made)
    for _ in range(3):
        plain.step()
    found.become(plan)
    saved, expected = made.optimizer.state_dict(), plain.optimizer.state_dict()
    assert saved["param_groups"] == expected["param_groups"]
    assert [one["step"].device for one in saved["state"].values()] == [torch.device("cpu")] * len(saved["state"])
    assert [float(one["step"]) for one in saved["state"].values()] == [3.0] * len(expected["state"])
    assert all(one["step"].is_cuda for one in made.optimizer.state.values())


class Loop:
    """A program that reads its batch under a name, and whose optimizer steps outside of what is captured."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Linear(64, 1).cuda()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-2)
        self.next(0)

    def next(self, seed: int) -> None:
        made = torch.Generator().manual_seed(seed)
        self.batch = torch.randn(8, 64, generator=made).cuda(), torch.randn(8, 1, generator=made).cuda()

    def backward(self) -> torch.Tensor:
        x, y = self.batch
        loss = (self.model(x) - y).square().mean()
        loss.backward()
        return loss.detach()


@pytest.mark.parametrize("to_none", [True, False])
@pytest.mark.parametrize("accumulated", [1, 2])
def test_a_captured_part_of_a_program_trains_as_the_program_does(accumulated, to_none):
    loop, plain = Loop(), Loop()
    found = subject_of(lambda: loop.backward)
    found.run()
    plain.backward()
    found.become((GRAPH,))
    losses, expected = [], []
    for number in range(6):
        for one in (loop, plain):
            one.next(number)
        losses.append(found.run())
        expected.append(plain.backward())
        if number % accumulated == accumulated - 1:
            for one in (loop, plain):
                one.optimizer.step()
                one.optimizer.zero_grad(set_to_none=to_none)
    assert found.plan, "the graph is still there"
    torch.testing.assert_close(torch.stack(losses), torch.stack(expected))
    torch.testing.assert_close(loop.model.weight, plain.model.weight)


def test_a_graph_ends_where_its_optimizer_loads():
    made = training()
    found = warm(made)
    found.become((GRAPH,))
    found.run()
    made.optimizer.load_state_dict(made.optimizer.state_dict())
    with pytest.warns(UserWarning, match="without its graph"):
        found.run()
    assert not found.plan


@pytest.mark.parametrize("plan", [(GRAPH,), (FUSED, GRAPH)])
def test_captured_and_undone_it_leaves_the_same_bits(plan):
    found = warm(training())
    before = bits(found), flags(found), after_a_step(found)
    turn = found.become(plan)
    with preserved(found.origin):
        found.run()
    turn.to_before()
    assert (bits(found), flags(found), after_a_step(found)) == before


ONLY_HERE = [(GRAPH,), (WHOLE, Dose(TREATMENTS["reduce-overhead"], ("step",))), (Dose(TREATMENTS["tf32"], ("torch",)),)]


@pytest.mark.parametrize("plan", ONLY_HERE, ids=lambda plan: plan[-1].treatment.name)
def test_what_only_a_gpu_takes_is_undone_to_the_bit_and_a_fault_leaves_the_subject_as_it_came(plan, monkeypatch):
    found = warm(training())
    before = *treated_as(found), torch.get_float32_matmul_precision()
    turn = found.become(plan)
    with patient_compiler(), preserved(found.origin):
        found.run()
    turn.to_before()
    assert (*treated_as(found), torch.get_float32_matmul_precision()) == before
    for failing in {1, min(5, sum(len(course.edits) for course in turn.after))}:
        with monkeypatch.context() as patch:
            patch.setattr(Edit, "swap", failing_at(failing))
            with pytest.raises(RuntimeError, match="injected"):
                found.become(plan)
        assert (*treated_as(found), torch.get_float32_matmul_precision()) == before


def treated_as(found):
    return bits(found), flags(found), after_a_step(found), found.step


def classifying():
    """Under autocast, its loss beside the model."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(Block(64), Block(64), torch.nn.Linear(64, LEAST // 32)).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    x, right = torch.randn(32, 64, device="cuda"), torch.randint(1000, (32,), device="cuda")

    def step():
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x), right)
        loss.backward()
        optimizer.step()
        return loss.detach()

    return step


@pytest.mark.parametrize(
    "plan",
    [
        (Dose(TREATMENTS["compile-loss"], (LOSS,)),),
        (Dose(TREATMENTS["compile-loss"], (LOSS,)), GRAPH),
        (Dose(TREATMENTS["compile-regions"], ("model:0", "model:1", LOSS)), GRAPH),
        (
            Dose(TREATMENTS["compile-regions"], ("model:0", "model:1", LOSS)),
            Dose(TREATMENTS["reduce-overhead"], ("step",)),
        ),
    ],
    ids=["alone", "alone, captured", "with blocks, captured", "with blocks that have graphs of their own"],
)
def test_a_loss_beside_the_model_is_generated_and_computes_the_same(plan):
    torch.compiler.reset()
    found = warm(classifying())
    known = truth(found)
    with preserved(found.origin):
        eager = launched(found.run, found.device)
    turn = found.become(plan)
    with patient_compiler(), preserved(found.origin):
        checked = verified(found, known, found.plan)
        for _ in range(3):
            found.run()
        treated = launched(found.run, found.device)
    turn.to_before()
    assert checked.passed, checked
    of_loss = [name for name in eager if "nll_loss" in name or "LogSoftMax" in name]
    assert of_loss
    assert not set(of_loss) & set(treated)


def test_a_step_does_not_notice_that_it_is_captured():
    noticed = []
    made = training()

    class Asking(torch.nn.Module):
        def forward(self, x):
            noticed.append(torch.cuda.is_current_stream_capturing())
            return x

    made.model.append(Asking())
    found = warm(made)
    found.become((GRAPH,))
    assert noticed
    assert not any(noticed)


def test_a_graph_reads_the_inputs_that_lie_there():
    found = warm(training())
    found.become((GRAPH,))
    with preserved(found.origin):
        first = float(found.run())
    with preserved(found.origin):
        found.inputs[0].mul_(2)
        assert float(found.run()) != first


def test_one_query_attention_is_compiled_as_it_is_spelled():
    class Decoding(torch.nn.Module):
        def forward(self, q, k, v):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, enable_gqa=True)

    shapes = ((1, 8, 1, 64), (1, 2, 100, 64), (1, 2, 100, 64))
    inputs = tuple(torch.randn(shape, device="cuda", dtype=torch.bfloat16) for shape in shapes)
    found = warm(Workload(Decoding(), inputs))
    known = truth(found)
    found.become((Dose(TREATMENTS["compile-tuned"], ("step",)),))
    with preserved(found.origin):
        assert verified(found, known, found.plan).passed


def test_a_search_finds_no_other_numbers_where_only_the_step_went_on():
    """Whatever runs between the truth and the trials is undone: one step of an optimizer, and every trial differs."""
    made = training(0.1)
    found = treat(lambda: made, "a step", budget_s=60.0, effort=replace(CUDA_STEP_EFFORT, budget_s=0.5))
    assert {one.treatment for one in found.kept} & {"whole-step-graph", "fused-optimizer"}
    assert not [one.reason for one in found.rejected if "other numbers" in one.reason]


def test_gradients_that_the_untreated_step_has_left_in_a_race_are_no_fault_of_the_captured_one():
    layer, x = torch.nn.Linear(64, 64).cuda(), torch.randn(16, 64, device="cuda")
    found = trained(lambda: layer(x).square().mean(), torch.optim.AdamW(layer.parameters(), lr=1e-2))
    known, said = truth(found), []
    turn = found.become((GRAPH,))
    with preserved(found.origin):
        turn.to_before()
        for _ in range(3):
            found.run()
        turn.to_after()
        found.run()
    assert verified(found, known, found.plan, said.append).passed
    assert not said, "by itself, and not as near as rounding might have moved it"


@pytest.mark.parametrize("share", [0.0, 0.5], ids=["its last loss", "a mean of losses"])
def test_what_a_step_puts_under_a_name_is_there_after_a_replay_too_or_it_is_not_captured(share):
    layer, x = torch.nn.Linear(64, 64).cuda(), torch.randn(16, 64, device="cuda")
    meter = {"loss": torch.zeros((), device="cuda")}

    def step():
        loss = layer(x).square().mean().detach()
        meter["loss"] = share * meter["loss"] + loss
        return loss

    found = warm(step)
    known = truth(found)
    before = meter["loss"]
    turn = found.become((GRAPH,))
    assert verified(found, known, found.plan).passed == (share == 0.0)
    turn.to_before()
    assert meter["loss"] is before


def test_a_captured_step_needs_the_memory_that_the_step_needs_and_what_it_reads_once_more():
    """A replay allocates nothing, and yet all of its memory is taken. So large that what else is there is little."""
    x = torch.randn(1 << 28, device="cuda")

    def step():
        return sum((x * 2, x + 1, x - 1)).sum()

    found = warm(step)
    plain = peak_bytes(found)
    others = private_pools(found.device)
    found.become((GRAPH,))
    assert plain == pytest.approx(6 * x.nbytes, rel=0.05)
    assert peak_bytes(found, others=others) == pytest.approx(7 * x.nbytes, rel=0.05)
