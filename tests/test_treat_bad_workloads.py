"""Workloads that make treating hard are treated as far as is safe, and are afterwards what they were."""

import signal
import warnings
from contextlib import contextmanager

import pytest
import torch
from torch import nn

import gobrrr.treat.treating
from gobrrr.errors import CannotDecide, ProgramFailed
from gobrrr.treat.treating import treat
from gobrrr.workload import Workload, warned_once
from test_examination import probed
from test_treat_cli import always_won, cheap
from test_treat_treatments import bits
from treating import Block, subject

__all__ = ["cheap", "probed"]

pytestmark = pytest.mark.usefixtures("probed", "cheap")


def treated(made):
    """What treating says; everything is bit for bit as it was."""
    found = subject(made)
    before = bits(found)
    result = treat(lambda: made, "made.py:up")
    assert bits(found) == before
    return result


def with_loss(model, x, optimizer=None):
    made = (optimizer or torch.optim.AdamW)(model.parameters(), lr=1e-2)
    return Workload(model, x, loss=lambda out: out.square().mean(), optimizer=made)


def interrupted(*_args):
    signal.raise_signal(signal.SIGINT)


@contextmanager
def interrupted_at_the_end(*_args, **_options):
    yield lambda *_given: None
    interrupted()


@pytest.mark.parametrize(("name", "stand_in"), [("advised", interrupted), ("rehearsals", interrupted_at_the_end)])
def test_an_interrupt_after_the_last_race_loses_nothing(monkeypatch, name, stand_in):
    """Whatever else its caller is about to handle."""
    monkeypatch.setattr(gobrrr.treat.treating, name, stand_in)
    try:
        raise ValueError  # noqa: TRY301 (of the caller)
    except ValueError:
        try:
            found = treated(with_loss(Block(), torch.randn(4, 16)))
        except KeyboardInterrupt:
            pytest.fail("what was found is lost")
    assert found.target == "made.py:up"
    assert (found.advice is None) == (name == "advised")


def test_what_could_not_be_put_back_is_told_though_an_interrupt_came_as_well(monkeypatch):
    @contextmanager
    def broken(*_args, **_options):
        yield lambda *_given: None
        interrupted()
        raise RuntimeError("not put back")

    monkeypatch.setattr(gobrrr.treat.treating, "rehearsals", broken)
    with pytest.raises(KeyboardInterrupt) as raised:
        treated(with_loss(Block(), torch.randn(4, 16)))
    assert str(raised.value.__context__) == "not put back"


def test_tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(10, 8)
            self.head = nn.Linear(8, 10, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.table(ids))

    treated(with_loss(Tied(), torch.arange(6)))


def test_integer_and_complex_outputs():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            y = self.layer(x)
            return {"best": y.argmax(-1), "spectrum": torch.fft.fft(y), "all": [y, y > 0]}

    treated(Workload(Mixed(), torch.randn(3, 4)))


def test_a_step_that_changes_its_inputs():
    x = torch.randn(5)
    treated(lambda: x.mul_(1.01).add_(0.1))


def test_a_cache_that_is_filled_and_reset():
    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer, self.filled = nn.Linear(4, 4), 0
            self.register_buffer("cache", torch.zeros(8, 4))

        def forward(self, x):
            self.cache[self.filled] = self.layer(x)
            self.filled += 1
            return self.cache.sum(0)

    model = Cached()
    treated(Workload(model, torch.randn(4), reset=lambda: setattr(model, "filled", 0)))


def test_a_training_step_whose_loss_is_no_number_is_not_treated():
    class Lost(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x):
            return self.layer(x) * float("nan")

    with pytest.raises(CannotDecide, match="see that they are finite"):
        treated(with_loss(Lost(), torch.randn(2, 4), torch.optim.AdamW))


def test_an_optimizer_of_ones_own_is_left_alone():
    class Mine(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data.sub_(group["lr"] * parameter.grad.sign())

    result = treated(with_loss(Block(), torch.randn(2, 16), Mine))
    assert "no fused form" in {one.treatment: one.reason for one in result.not_tried}["fused-optimizer"]


def test_what_is_random_otherwise_than_by_dropout_is_compared_by_its_distribution(monkeypatch):
    monkeypatch.setattr("gobrrr.treat.search.WORTH_TRYING", 0.0)
    monkeypatch.setattr("gobrrr.treat.trial.race", always_won)

    class Noisy(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x):
            return self.layer(x + torch.randn_like(x))

    result = treated(with_loss(Noisy(), torch.randn(4, 16)))
    assert result.kept
    assert all(one.numerics.weak for one in result.kept)


def test_a_step_that_raises_is_the_users_own_failure():
    made = with_loss(Block(), torch.randn(2, 16))

    def loss(out):
        raise ValueError("labels")

    with pytest.raises(ProgramFailed, match=r"ValueError at test_treat_bad_workloads\.py:"):
        treat(lambda: Workload(made.model, made.inputs, loss=loss, optimizer=made.optimizer), "made.py:up")


def test_what_a_step_warns_of_in_every_run_is_shown_once():
    """Also where somebody has caught warnings meanwhile, after which Python has forgotten all that it has shown."""

    @warned_once()
    def runs():
        for _ in range(3):
            with warnings.catch_warnings():
                warnings.warn("a hook fires", UserWarning, stacklevel=1)
        warnings.warn("another hook fires", UserWarning, stacklevel=1)

    with pytest.warns(UserWarning, match="fires") as told:
        runs()
    assert [str(one.message) for one in told] == ["a hook fires", "another hook fires"]
