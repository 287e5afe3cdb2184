"""The loss that torch is asked for: generated in plain calls, torch's own in all others, and afterwards in all."""

import inspect
import pickle
import threading

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch.autograd import forward_ad
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint

from gobrrr.treat import cross_entropy, losses
from gobrrr.treat.cross_entropy import generated_loss
from gobrrr.treat.edit import in_force, swap_off, swap_on
from gobrrr.treat.loss_head import by_its_parts, loss_by_its_parts
from gobrrr.treat.treatment import Unfit
from treating import classifying, subject

pytestmark = pytest.mark.filterwarnings(
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning"
)  # Dynamo

CODE = functional.cross_entropy.__code__

ROWS, CLASSES = 8, 24


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    monkeypatch.setattr(cross_entropy, "LEAST", ROWS * CLASSES)
    torch.compiler.reset()
    counters.clear()
    assert functional.cross_entropy.__code__ is CODE, "as others have left it"
    yield
    assert functional.cross_entropy.__code__ is CODE


@pytest.fixture
def generated():
    with in_force(generated_loss()):
        yield


def batch(dtype=torch.float32, **how):
    torch.manual_seed(0)
    return torch.randn(ROWS, CLASSES, dtype=dtype, requires_grad=True), torch.randint(CLASSES, (ROWS,), **how)


def is_generated(loss: torch.Tensor) -> bool:
    return "GeneratedLoss" in type(loss.grad_fn).__name__


def eager(*args, **how):
    return cross_entropy.torchs_own()(*args, **how)


def with_gradient(loss, logits, target, **how):
    found = loss(logits, target, **how)
    return found.detach(), *torch.autograd.grad(found.sum(), logits)


def test_torchs_function_is_one_whose_code_another_can_take_the_place_of():
    own = functional.cross_entropy
    assert (own.__closure__, own.__kwdefaults__) == (None, None)
    ours = inspect.signature(cross_entropy._asking).parameters.values()
    theirs = inspect.signature(own).parameters.values()
    assert [(one.name, one.default, one.kind) for one in ours] == [(one.name, one.default, one.kind) for one in theirs]


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 3])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.usefixtures("generated")
def test_it_is_the_loss_and_has_its_gradient(reduction, ignored, dtype):
    logits, target = batch(dtype)
    how = {"reduction": reduction, "ignore_index": ignored}
    found = functional.cross_entropy(logits, target, **how)
    assert is_generated(found)
    expected = eager(logits, target, **how)
    truth = eager(logits.double(), target, **how)
    gradients = [torch.autograd.grad(one.sum(), logits)[0] for one in (found, expected, truth)]
    assert found.dtype == expected.dtype
    for one, usual, right in ((found, expected, truth), gradients):
        usual_off = (usual.double() - right.double()).abs().max()
        assert (one.double() - right.double()).abs().max() <= 2 * usual_off + torch.finfo(dtype).eps * right.abs().max()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.usefixtures("generated")
def test_under_autocast_it_is_given_in_the_type_that_torch_gives_it_in(dtype):
    logits, target = batch(dtype)
    with torch.autocast("cpu", torch.bfloat16):
        found, expected = functional.cross_entropy(logits, target), eager(logits, target)
    assert is_generated(found)
    assert found.dtype == expected.dtype
    torch.testing.assert_close(found, expected)


@pytest.mark.usefixtures("generated")
def test_where_nothing_counts_it_is_no_number_as_torchs_is_none():
    logits, _ = batch()
    nothing = torch.full((ROWS,), -100)
    torch.testing.assert_close(functional.cross_entropy(logits, nothing), eager(logits, nothing), equal_nan=True)


@pytest.mark.parametrize("wrong", [CLASSES, -1])
@pytest.mark.usefixtures("generated")
def test_a_class_that_is_none_is_told_as_torch_tells_it(wrong):
    logits, target = batch()
    target[-1] = wrong
    with pytest.raises(IndexError, match="out of bounds"):
        functional.cross_entropy(logits, target)


@pytest.mark.usefixtures("generated")
def test_without_gradients_it_is_the_same_number():
    logits, target = batch()
    expected = eager(logits, target)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            torch.testing.assert_close(functional.cross_entropy(logits, target), expected.detach())
    assert counters["stats"]["unique_graphs"] == 2


OTHERS = {
    "smoothed": lambda logits, target: ((logits, target), {"label_smoothing": 0.1}),
    "weighed": lambda logits, target: ((logits, target), {"weight": torch.linspace(0.5, 2, CLASSES)}),
    "averaged": lambda logits, target: ((logits, target), {"size_average": True}),
    "one row": lambda logits, target: ((logits[0], target[0]), {}),
    "pictures": lambda logits, target: ((logits[:, :, None], target[:, None]), {}),
    "probabilities": lambda logits, target: ((logits, logits.detach().softmax(-1)), {}),
    "bytes": lambda logits, target: ((logits, target.to(torch.uint8)), {}),
    "few": lambda logits, target: ((logits[1:], target[1:]), {}),
    "no rows": lambda logits, target: ((logits[:0], target[:0]), {"reduction": "sum"}),
}


@pytest.mark.filterwarnings("ignore:size_average and reduce args will be deprecated:UserWarning")
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.usefixtures("generated")
def test_whatever_counts_otherwise_is_torchs_own(other):
    args, how = OTHERS[other](*batch())
    found = functional.cross_entropy(*args, **how)
    assert not is_generated(found)
    torch.testing.assert_close(found, eager(*args, **how))
    assert counters["stats"]["unique_graphs"] == 0


@pytest.mark.usefixtures("generated")
def test_what_is_wrong_is_told_as_torch_tells_it():
    logits, target = batch()
    with pytest.raises(ValueError, match="Expected input batch_size"):
        functional.cross_entropy(logits, target[:3])


# **** who asks ****


@pytest.mark.parametrize(
    "ask",
    [
        functional.cross_entropy,
        lambda logits, target: functional.cross_entropy(target=target, input=logits),
        nn.CrossEntropyLoss(),
    ],
    ids=["by another name", "by keywords", "a module"],
)
@pytest.mark.usefixtures("generated")
def test_whoever_asks_is_answered_by_it(ask):
    logits, target = batch()
    found = ask(logits, target)
    assert is_generated(found)
    torch.testing.assert_close(found, eager(logits, target))


@pytest.mark.usefixtures("generated")
def test_who_asks_from_another_thread_is_answered_by_it():
    """As backward passes on a GPU do with what was checkpointed."""
    heard = []
    other = threading.Thread(target=lambda: heard.append(functional.cross_entropy(*batch())))
    other.start()
    other.join()
    assert is_generated(heard[0])


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_who_want_it_either_may_end_first(first):
    """As of two models with a prescription each."""
    both = [swap_on(generated_loss()) for _ in range(2)]
    swap_off(both[first])
    assert is_generated(functional.cross_entropy(*batch()))
    swap_off(both[1 - first])
    assert not is_generated(functional.cross_entropy(*batch()))


@pytest.mark.usefixtures("generated")
def test_what_a_default_device_is_does_not_matter():
    with torch.device("cpu"):
        assert is_generated(functional.cross_entropy(*batch()))


class Holding(nn.Module):
    """Its loss, as it is called by a name of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.loss = functional.cross_entropy


def test_who_holds_it_can_be_saved_meanwhile_and_afterwards():
    with in_force(generated_loss()):
        made = Holding()
        assert pickle.loads(pickle.dumps(made)).loss is functional.cross_entropy  # noqa: S301 (our own)
    assert pickle.loads(pickle.dumps(made)).loss is functional.cross_entropy  # noqa: S301


# **** gradients ****


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.usefixtures("generated")
def test_its_gradient_may_be_asked_for_again(reduction):
    logits, target = batch()
    functional.cross_entropy(logits, target, reduction=reduction).sum().backward()
    loss = functional.cross_entropy(logits, target, reduction=reduction).sum()
    first, second = (torch.autograd.grad(loss, logits, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.usefixtures("generated")
def test_it_has_second_derivatives(reduction):
    logits, target = batch(torch.float64)

    def second(loss):
        (gradient,) = torch.autograd.grad(loss(logits, target, reduction=reduction).sum(), logits, create_graph=True)
        return torch.autograd.grad(gradient.pow(3).sum(), logits)[0]

    torch.testing.assert_close(second(functional.cross_entropy), second(eager))


@pytest.mark.usefixtures("generated")
def test_many_gradients_may_be_asked_for_at_once():
    logits, target = batch()

    def each(loss):
        losses = loss(logits, target, reduction="none")
        return torch.autograd.grad(losses, logits, torch.eye(ROWS), is_grads_batched=True)[0]

    torch.testing.assert_close(each(functional.cross_entropy), each(eager))


@pytest.mark.usefixtures("generated")
def test_logits_that_were_written_into_since_are_told():
    logits, target = batch()
    written = logits * 2
    loss = functional.cross_entropy(written, target)
    with torch.no_grad():
        written.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.usefixtures("generated")
def test_computed_once_more_for_its_gradient_it_is_the_same(reentrant):
    logits, target = batch()
    loss = checkpoint(lambda rows: functional.cross_entropy(rows, target), logits, use_reentrant=reentrant)
    loss.backward()
    torch.testing.assert_close(logits.grad, *torch.autograd.grad(eager(logits, target), logits))


# **** who looks closer ****


def test_within_what_is_compiled_it_is_torchs_own_and_known_as_that():
    graphs = []

    def backend(graph, _inputs):
        graphs.append([node.target for node in graph.graph.nodes])
        loss_by_its_parts(graph.graph)
        graphs.append([node.target for node in graph.graph.nodes])
        return graph.forward

    logits, target = batch()
    whole = torch.compile(lambda: nn.CrossEntropyLoss()(logits * 2, target), backend=backend, fullgraph=True)
    with in_force(generated_loss()):
        found = whole()
    torch.testing.assert_close(found, eager(logits * 2, target))
    before, after = graphs
    assert functional.cross_entropy in before
    assert by_its_parts in after


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.usefixtures("generated")
def test_compilers_that_trace_it_once_more_find_torchs_own(backend, smoothing):
    logits, target = batch()
    whole = torch.compile(
        lambda: functional.cross_entropy(logits * 2, target, label_smoothing=smoothing), backend=backend, fullgraph=True
    )
    loss = whole()
    expected = eager(logits * 2, target, label_smoothing=smoothing)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(*(torch.autograd.grad(one, logits)[0] for one in (loss, expected)))


@pytest.mark.usefixtures("generated")
def test_transforms_of_functions_go_through_torchs_own_and_change_nothing_for_others():
    logits, target = batch()
    each = torch.func.vmap(torch.func.grad(lambda row, one: functional.cross_entropy(row[None], one[None])))
    (expected,) = torch.autograd.grad(eager(logits, target, reduction="sum"), logits)
    torch.testing.assert_close(each(logits.detach(), target), expected)
    assert is_generated(functional.cross_entropy(logits, target))
    assert counters["stats"]["unique_graphs"] == 1


@pytest.mark.usefixtures("generated")
def test_who_wants_a_tangent_has_it():
    logits, target = batch()
    tangent = torch.randn(ROWS, CLASSES)

    def along(loss):
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(logits.detach(), tangent)
            return forward_ad.unpack_dual(loss(dual, target)).tangent

    torch.testing.assert_close(along(functional.cross_entropy), along(eager))


@pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")
@pytest.mark.parametrize("how", ["trace", "script", "script the function"])
@pytest.mark.usefixtures("generated")
def test_a_loss_is_traced_and_scripted_as_torchs_own(how):
    logits, target = batch()
    plain = logits.detach(), target
    make = {
        "trace": lambda: torch.jit.trace(nn.CrossEntropyLoss(), plain),
        "script": lambda: torch.jit.script(nn.CrossEntropyLoss()),
        "script the function": lambda: torch.jit.script(functional.cross_entropy),
    }[how]
    torch.testing.assert_close(make()(*plain), eager(*plain))


class Ours(torch.Tensor):
    """Overrides torch's own by what it is."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return "handled" if func is functional.cross_entropy else super().__torch_function__(func, types, args, kwargs)


@pytest.mark.usefixtures("generated")
def test_who_overrides_torchs_own_is_asked():
    logits, target = batch()
    assert functional.cross_entropy(logits.as_subclass(Ours), target) == "handled"
    assert functional.cross_entropy(input=logits.as_subclass(Ours), target=target) == "handled"


@pytest.mark.usefixtures("generated")
def test_who_traces_finds_torchs_own():
    logits, target = batch()
    traced = make_fx(lambda one, other: functional.cross_entropy(one, other))(logits, target)  # noqa: PLW0108
    assert any("log_softmax" in str(node.target) for node in traced.graph.nodes)


@pytest.mark.usefixtures("generated")
def test_symbolic_tracing_writes_it_down_as_what_it_is():
    class Losing(nn.Module):
        def forward(self, logits, target):
            return functional.cross_entropy(logits, target)

    traced = torch.fx.symbolic_trace(Losing())
    assert functional.cross_entropy in [node.target for node in traced.graph.nodes]


@pytest.mark.usefixtures("generated")
def test_who_listens_to_ops_hears_torchs_own():
    heard = []

    class Ops(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            heard.append(func)
            return func(*args, **(kwargs or {}))

    with Ops():
        functional.cross_entropy(*batch())
    assert torch.ops.aten._log_softmax.default in heard


@pytest.mark.usefixtures("generated")
def test_where_nothing_is_to_be_compiled_it_is_torchs_own():
    for stance in ("force_eager", "fail_on_recompile"):
        with torch.compiler.set_stance(stance):
            assert not is_generated(functional.cross_entropy(*batch()))


@pytest.mark.usefixtures("generated")
def test_where_there_are_no_numbers_it_is_torchs_own():
    logits, target = (one.to("meta") for one in batch())
    assert functional.cross_entropy(logits, target).shape == ()


def test_what_a_program_has_put_in_its_place_stays(monkeypatch):
    own = functional.cross_entropy

    def around(*args, **how):
        return own(*args, **how)

    monkeypatch.setattr(functional, "cross_entropy", around)
    code = around.__code__
    with pytest.raises(Unfit, match="another function"):
        swap_on(generated_loss())
    assert around.__code__ is code
    assert losses.logits_asked_for(subject(classifying())) == frozenset()
    monkeypatch.undo()
