"""Memory: what the counter says is alive, against torch's own account of what autograd keeps, and closed forms."""

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from counting import programmed
from gobrrr.work.fake import fake_tensors
from gobrrr.work.op import Phase
from gobrrr.work.program import Memory, peak, saved_at
from gobrrr.work.storages import Life

LOSS, FIRST_GRADIENT = 4, 4
"""The loss itself, and the one that its backward begins with, are alive too when the backward begins."""


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, 8)).permute(2, 0, 3, 1, 4)
        return self.out(functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return checkpoint(self.inner, x, use_reentrant=False)


class Conv(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.Flatten(1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layers(x.view(-1, 3, 8, 8))


MODELS = {
    "MLP": (lambda: nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)), (3, 5, 16)),
    "norm and softmax": (lambda: nn.Sequential(nn.LayerNorm(16), nn.Softmax(-1), nn.Linear(16, 4)), (3, 16)),
    "dropout": (lambda: nn.Sequential(nn.Linear(16, 16), nn.Dropout(0.5), nn.Tanh()), (3, 16)),
    "attention": (Attention, (2, 6, 16)),
    "in place and batch norm": (Conv, (2, 192)),
    "checkpointed": (Checkpointed, (3, 16)),
}


def kept_by_autograd(model: nn.Module, x: torch.Tensor) -> int:
    """Bytes of distinct storages that autograd saves, less those of parameters, buffers and inputs."""
    kept: dict[int, int] = {}
    there = {tensor.untyped_storage()._cdata for tensor in (x, *model.parameters(), *model.buffers())}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in there:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(x).square().mean()
    saved = sum(kept.values())
    del loss
    return saved


@pytest.mark.parametrize("name", MODELS)
def test_saved_bytes_are_what_autograd_keeps(name):
    build, shape = MODELS[name]
    model, x = build(), torch.ones(shape)
    memory = programmed(lambda: model(x).square().mean().backward()).memory
    assert memory.saved_bytes == kept_by_autograd(model, x) + LOSS + FIRST_GRADIENT


def test_saved_bytes_of_a_layer_are_told_by_module():
    model, x = nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 16)), torch.ones(3, 16)
    saved = programmed(lambda: model(x).square().mean().backward()).memory.saved_by_module
    width = 4 * 3
    assert saved == {
        "Sequential.0": 64 * width,  # for gelu
        "Sequential.1": 64 * width,  # for the second product
        "Sequential.2": 16 * width,  # for the square
        "": LOSS + FIRST_GRADIENT,
    }


def test_checkpointing_keeps_only_the_input_of_what_it_runs_again():
    """The input was there before the step, so of the inner layers nothing is kept."""
    model, x = Checkpointed(), torch.ones(3, 16)
    saved = programmed(lambda: model(x).square().mean().backward()).memory.saved_by_module
    assert "Checkpointed.inner.0" not in saved
    assert "Checkpointed.inner.1" not in saved


def test_nothing_is_saved_where_nothing_goes_back():
    model, x = nn.Linear(16, 64), torch.ones(3, 16)
    with torch.no_grad():
        assert programmed(model, x).memory.saved_bytes == 0


def test_of_several_backwards_the_largest_saved_set_counts():
    model = nn.Linear(16, 64)
    small, large = torch.ones(3, 16), torch.ones(30, 16)

    def step() -> None:
        for x in (small, large, small):
            model(x).square().mean().backward()

    assert programmed(step).memory.saved_bytes == 4 * 30 * 64 + LOSS + FIRST_GRADIENT


# **** peak ****

KIB = torch.ones(256)
"""A tensor of 1024 bytes."""


@pytest.mark.parametrize(
    ("steps", "tensors"),
    [
        pytest.param(lambda x: x.exp().sin().cos(), 1 + 2, id="a chain holds input, last and next"),
        pytest.param(lambda x: [x.exp(), x.sin(), x.cos()], 1 + 3, id="what is kept adds up"),
        pytest.param(lambda x: [x.exp() for _ in range(9)] and None, 1 + 9, id="until it is let go"),
        pytest.param(lambda x: (x.exp().sum(), x.sin().sum()), 1 + 1, id="what is freed makes room"),
        pytest.param(lambda x: x.exp().sin_().cos_(), 1 + 1, id="in place needs no room"),
        pytest.param(lambda x: x.view(16, 16).T[1:].expand(5, 15, 16), 1, id="nor do views"),
        pytest.param(lambda x: x.exp() + x.sin() * x.cos(), 1 + 4, id="three operands and a product"),
    ],
)
def test_the_peak_of_known_tensors_is_their_sum_when_most_are_alive(steps, tensors):
    """Whole tensors only: the two numbers that the sums return are 4 bytes each."""
    with torch.no_grad():
        memory = programmed(steps, KIB).memory
    assert memory.peak_bytes // 1024 == tensors
    assert memory.resident_bytes == 1024


def test_the_peak_of_a_training_step_is_a_closed_form():
    """loss = Σ relu(W·x) peaks when relu's result is still there and its gradient is made.

    Before, W·x and relu's result lay side by side without loss and first gradient; after, the gradient of W is
    smaller than relu's result, which is gone by then.
    """
    model, x = nn.Linear(32, 32, bias=False), torch.ones(64, 32)
    weight, activation = 4 * 32 * 32, 4 * 64 * 32
    memory = programmed(lambda: model(x).relu().sum().backward()).memory
    assert memory.resident_bytes == weight + activation
    assert memory.peak_bytes == weight + activation + 2 * activation + LOSS + FIRST_GRADIENT


def test_the_optimizers_state_is_resident_from_the_second_step_on():
    model, x = nn.Linear(32, 32), torch.ones(4, 32)
    optimizer = torch.optim.AdamW(model.parameters())

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    first, second = programmed(step).memory, programmed(step).memory
    parameters = 4 * (32 * 32 + 32)
    counters = 2 * 4
    assert first.resident_bytes == parameters + 4 * 4 * 32 + counters
    assert second.resident_bytes == first.resident_bytes + 2 * parameters


def test_memory_on_fake_tensors_is_memory_on_real_ones():
    def measured() -> Memory:
        model, x = Attention(), torch.ones(2, 6, 16)
        return programmed(lambda: model(x).square().mean().backward()).memory

    real = measured()
    with fake_tensors():
        assert measured() == real


# **** the arithmetic of lives ****


def life(born: int, died: int | None, nbytes: int = 1, phase: Phase = Phase.FORWARD) -> Life:
    return Life(nbytes, born, phase, "m", died)


def test_what_an_op_frees_is_there_while_it_runs():
    """Op 1 reads what op 0 made and frees it; what it makes itself is born at its end."""
    assert peak([life(1, 1, 10), life(2, None, 7)], ops=2) == 17


def test_what_was_freed_before_an_op_is_not_there_when_it_runs():
    assert peak([life(1, 1, 10), life(3, None, 7)], ops=3) == 10


def test_saved_is_what_the_forward_pass_made_and_what_lives_when_the_backward_begins():
    lives = [
        life(0, None, 1),  # was there before
        life(1, 1, 2),  # freed in the forward pass
        life(2, 5, 4),  # freed by the backward pass
        life(2, 3, 32),  # freed by its very first op
        life(3, None, 8),  # never freed
        life(4, None, 16, Phase.BACKWARD),
    ]
    assert saved_at(lives, moment=3) == {"m": 4 + 32 + 8}
