"""A loss over padded logits reads their rows to the end, and is the same with the same gradients."""

import re
from functools import partial

import pytest
import torch
import transformers
from torch import nn
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr.treat.attention import known
from gobrrr.treat.compiling import eager_after, inductor_after
from gobrrr.treat.loss_head import by_its_parts, loss_by_its_parts, loss_over_padding
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.treatments.padded_products import padded_forward
from gobrrr.treat.verify import truth, verified
from gobrrr.workload import Workload
from treating import subject

CLASSES, PADDED = 51, 64


def plain(logits, labels):
    return functional.cross_entropy(logits.view(-1, CLASSES), labels.view(-1))


def in_fp32_and_ignoring(logits, labels):
    labels = labels.masked_fill(labels < 9, -100)
    return functional.cross_entropy(logits.float().flatten(0, 1), labels.flatten(), ignore_index=-100, reduction="sum")


def shifted(logits, labels):
    """As it was done of old: the logits' last token is cut off."""
    return functional.cross_entropy(logits[:, :-1, :].contiguous().view(-1, CLASSES), labels[:, 1:].reshape(-1))


def by_the_module(logits, labels):
    return nn.CrossEntropyLoss(reduction="none")(logits.reshape(-1, CLASSES), labels.reshape(-1)).square().sum()


def smoothed(logits, labels):
    return functional.cross_entropy(logits.view(-1, CLASSES), labels.view(-1), label_smoothing=0.1)


def weighed(logits, labels):
    weight = torch.linspace(0, 1, CLASSES)
    return functional.cross_entropy(logits.view(-1, CLASSES), labels.view(-1), weight=weight)


def of_probabilities(logits, labels):
    return functional.cross_entropy(logits.view(-1, CLASSES), functional.one_hot(labels.view(-1), CLASSES).float())


def classes_in_the_middle(logits, labels):
    return functional.cross_entropy(logits.transpose(1, 2), labels)


def changed_between(logits, labels):
    return functional.cross_entropy((logits * 2).view(-1, CLASSES), labels.view(-1))


class Head(nn.Module):
    def __init__(self, loss, *, bias: bool) -> None:
        super().__init__()
        self.head, self.loss = nn.Linear(16, CLASSES, bias=bias), loss
        self.head.forward = partial(padded_forward, self.head)

    def forward(self, x, labels):
        logits = self.head(x)
        return self.loss(logits, labels), logits


def run(model, x, labels, backend=None):
    """Loss, logits and gradients, and of each loss whether it reads the padding."""
    padded, x = [], x.clone().requires_grad_()

    def noted(graph):
        losses = graph.find_nodes(op="call_function", target=functional.cross_entropy)
        padded.extend(known(loss.args[0]).shape[-1] == PADDED for loss in losses)

    torch.compiler.reset()
    called = model if backend is None else torch.compile(model, backend=eager_after(loss_over_padding, noted))
    loss, logits = called(x, labels)
    found = torch.autograd.grad(loss, [x, *model.parameters()])
    return [loss, logits, *found], padded


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("loss", [plain, in_fp32_and_ignoring, shifted, by_the_module])
def test_a_loss_over_padded_logits_reads_all_of_them_and_is_the_same(loss, bias):
    torch.manual_seed(0)
    model, x, labels = Head(loss, bias=bias), torch.randn(2, 6, 16), torch.randint(CLASSES, (2, 6))
    right, _ = run(model, x, labels)
    found, read = run(model, x, labels, "traced")
    assert read == [True]
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("loss", [smoothed, weighed, of_probabilities, classes_in_the_middle, changed_between])
def test_a_loss_that_counts_more_than_the_right_class_stays(loss):
    model, x, labels = Head(loss, bias=True), torch.randn(2, 6, 16), torch.randint(CLASSES, (2, 6))
    right, _ = run(model, x, labels)
    found, read = run(model, x, labels, "traced")
    assert read == [False]
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other)


def test_a_product_that_is_read_as_a_whole_elsewhere_stays():
    def loss(x, weight, labels):
        logits = functional.linear(x, weight)
        return functional.cross_entropy(logits[..., :CLASSES], labels) + logits.square().mean()

    torch.compiler.reset()
    given = torch.randn(6, 16), torch.randn(PADDED, 16), torch.randint(CLASSES, (6,))
    traced = torch.compile(loss, backend=eager_after(loss_over_padding))
    torch.testing.assert_close(traced(*given), loss(*given))


@pytest.mark.gpu
def test_on_a_device_the_loss_of_a_padded_head_makes_no_tensor_of_its_own_size_in_fp32():
    """Behind the compiler nothing is as large as the logits but they and their gradient, in bf16."""
    torch.manual_seed(0)
    model = Head(in_fp32_and_ignoring, bias=False).cuda()
    x, labels = torch.randn(4, 2048, 16, device="cuda"), torch.randint(CLASSES, (4, 2048), device="cuda")
    called = torch.compile(model, backend=inductor_after())

    def step():
        with torch.autocast("cuda", torch.bfloat16):
            loss, _ = called(x, labels)
        loss.backward()

    _, code = run_and_get_code(step)
    made = re.findall(r"empty_strided_cuda\(\((?:8192|4, 2048), (\d+)\), .*?, torch\.(\w+)\)", "\n".join(code))
    assert {one for one in made if int(one[0]) >= CLASSES} == {(str(PADDED), "bfloat16")}


def bert() -> Workload:
    """A model that computes its own loss, of which the logits are returned too."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    quiet = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    model = transformers.BertForMaskedLM(transformers.BertConfig(**sizes, **quiet, vocab_size=CLASSES))
    ids = torch.randint(CLASSES, (2, 6))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    return Workload(model, {"input_ids": ids, "labels": ids}, loss=lambda output: output.loss, optimizer=optimizer)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning")
def test_a_whole_step_with_its_padded_loss_compiled_computes_the_same_and_is_undone():
    found = subject(bert())
    right = truth(found)
    (model,) = found.models.values()
    (head,) = [name for name, module in model.named_modules() if module is model.get_output_embeddings()]
    names = list(model.state_dict())
    found.become((Dose(TREATMENTS["padded-products"], (f"model:{head}",)), Dose(TREATMENTS["compile"], ("step",))))
    checked = verified(found, right, found.plan)
    assert checked.passed, checked
    assert list(model.state_dict()) == names
    found.end()
    assert "forward" not in vars(model.get_output_embeddings())


def test_between_product_and_loss_only_the_padded_logits_are_kept():
    """In bf16 and padded, for both passes: what the loss makes of them in fp32 is never written."""
    model, x = Head(in_fp32_and_ignoring, bias=False), torch.randn(2, 6, 16)
    labels = torch.randint(CLASSES, (2, 6))
    torch.compiler.reset()
    called = torch.compile(model, backend=inductor_after())

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = called(x, labels)
        loss.backward()

    _, code = run_and_get_code(step)
    made = re.findall(r"empty_strided_cpu\(\((?:12|2, 6), (\d+)\), .*?, torch\.(\w+)\)", "\n".join(code))
    assert [one for one in made if int(one[0]) >= CLASSES] == [(str(PADDED), "bfloat16")] * 2


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("ignored", [-100, 3, 255])
def test_a_loss_by_its_parts_is_the_loss_and_has_its_gradient(reduction, ignored):
    torch.manual_seed(0)
    logits = (20 * torch.randn(64, CLASSES)).requires_grad_()
    target = torch.randint(CLASSES, (64,)).masked_fill(torch.arange(64) % 5 == 0, ignored)
    how = {"ignore_index": ignored, "reduction": reduction}
    exact = functional.cross_entropy(logits.double(), target, **how)
    found = by_its_parts(logits, target, **how, dtype=torch.float32)
    torch.testing.assert_close(found, exact.float())
    upstream = torch.randn_like(exact)
    mine, right = (torch.autograd.grad(loss, logits, upstream.to(loss.dtype))[0] for loss in (found, exact))
    torch.testing.assert_close(mine, right)


@pytest.mark.parametrize("reduction", ["mean", "none"])
@pytest.mark.parametrize("autocast", [True, False])
def test_a_loss_has_the_type_that_it_has_uncompiled(autocast, reduction):
    """Autocast gives a loss of logits in bf16 in fp32, knowing it by its name."""

    def loss(logits, target):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            return functional.cross_entropy(logits, target, reduction=reduction)

    given = torch.randn(8, CLASSES, dtype=torch.bfloat16), torch.randint(CLASSES, (8,))
    torch.compiler.reset()
    found = torch.compile(loss, backend=eager_after(loss_by_its_parts))(*given)
    assert found.dtype == loss(*given).dtype == (torch.float32 if autocast else torch.bfloat16)


def test_what_is_minus_infinity_counts_for_nothing():
    logits = torch.randn(8, PADDED)
    logits[:, CLASSES:] = -torch.inf
    logits.requires_grad_()
    target = torch.randint(CLASSES, (8,))
    loss = by_its_parts(logits, target, dtype=torch.float32)
    torch.testing.assert_close(loss, functional.cross_entropy(logits[:, :CLASSES], target))
    assert torch.autograd.grad(loss, logits)[0][:, CLASSES:].eq(0).all()


@pytest.mark.parametrize(("loss", "changes"), [(plain, True), (in_fp32_and_ignoring, True), (smoothed, False)])
def test_losses_that_count_classes_alone_are_written_by_their_parts(loss, changes):
    made = []

    def look(graph):
        made.extend(graph.find_nodes(op="call_function", target=by_its_parts))

    logits, labels = torch.randn(2, 8, CLASSES), torch.randint(CLASSES, (2, 8))
    traced = torch.compile(loss, backend=eager_after(loss_by_its_parts, look))
    torch.testing.assert_close(traced(logits, labels), loss(logits, labels))
    assert bool(made) is changes


def test_a_loss_in_fp64_stays_so():
    logits, target = torch.randn(8, CLASSES, dtype=torch.float64, requires_grad=True), torch.randint(CLASSES, (8,))
    losses = by_its_parts(logits, target, dtype=logits.dtype), functional.cross_entropy(logits, target)
    mine, right = (torch.autograd.grad(loss, logits)[0] for loss in losses)
    torch.testing.assert_close(losses[0], losses[1], rtol=1e-14, atol=0)
    torch.testing.assert_close(mine, right, rtol=1e-12, atol=1e-15)


def test_a_loss_under_a_transform_of_functions_stays():
    def gradients(logits, target):
        one = torch.func.grad(lambda row, label: functional.cross_entropy(row[None], label[None]))
        return torch.func.vmap(one)(logits, target)

    torch.compiler.reset()
    given = torch.randn(8, CLASSES), torch.randint(CLASSES, (8,))
    traced = torch.compile(gradients, backend=eager_after(loss_by_its_parts))
    torch.testing.assert_close(traced(*given), gradients(*given))
