"""What compiled training keeps for its gradients: no mask beside an activation that tells it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

from gobrrr.treat.activation_masks import masks_made_again
from gobrrr.treat.compiling import inductor_after

X = torch.linspace(-1, 1, 2 * 3 * 8).reshape(2, 3, 8)


def layers(between: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), between, nn.Linear(16, 4))


def kept(model: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.dtype]:
    """For the backward, which is run."""
    types: list[torch.dtype] = []

    def note(tensor: torch.Tensor) -> torch.Tensor:
        types.append(tensor.dtype)
        return tensor

    with saved_tensors_hooks(note, lambda tensor: tensor):
        model(X).square().sum().backward()  # type: ignore[no-untyped-call]
    return types


def gradients(model: nn.Module) -> list[torch.Tensor]:
    return [one.grad for one in model.parameters() if one.grad is not None]


def test_a_mask_is_kept_by_torch_and_not_by_us() -> None:
    """Where torch keeps none any more, this pass has nothing to do."""
    assert torch.bool in kept(torch.compile(layers(nn.ReLU())))
    torch.compiler.reset()
    assert torch.bool not in kept(torch.compile(layers(nn.ReLU()), backend=inductor_after()))


@pytest.mark.parametrize(
    "between", [nn.ReLU(), nn.ReLU6(), nn.LeakyReLU(), nn.Hardswish(), nn.Sequential(nn.ReLU(), nn.ReLU())]
)
def test_gradients_are_those_of_eager(between: nn.Module) -> None:
    eager, ours = layers(between), layers(between)
    kept(eager)
    torch.compiler.reset()
    kept(torch.compile(ours, backend=inductor_after()))
    assert len(gradients(ours)) == 4
    torch.testing.assert_close(gradients(ours), gradients(eager))


def test_sizes_that_may_change_are_left_alone() -> None:
    model = layers(nn.ReLU())
    torch.compiler.reset()
    called = torch.compile(model, backend=inductor_after(), dynamic=True)
    for rows in (2, 5, 7):
        x = torch.randn(rows, 3, 8)
        torch.testing.assert_close(called(x), model(x))
        called(x).sum().backward()


def test_who_has_a_pass_of_their_own_keeps_it() -> None:
    from torch._inductor import config

    def own(graph: Any) -> None:
        del graph

    assert list(masks_made_again()) == ["joint_custom_post_pass"]
    with config.patch(joint_custom_post_pass=own):
        assert not masks_made_again()


def test_what_is_compiled_so_is_found_in_the_cache_again() -> None:
    first, second = (masks_made_again()["joint_custom_post_pass"].uuid() for _ in range(2))
    assert first == second
    assert first is not None
