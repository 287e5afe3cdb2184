"""B208: the loss of a large vocabulary, op by op in fp32; its twin is compiled with the head."""

from collections.abc import Callable

import torch
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized

TOKENS, WIDTH, WORDS = sized(512, 8192), sized(64, 1024), sized(8192, 65536)


def _loss(hidden: torch.Tensor, head: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy((hidden @ head).float(), labels)


def _step(loss: Callable[..., torch.Tensor]) -> Callable[[], object]:
    hidden = torch.randn(TOKENS, WIDTH, device=DEVICE, dtype=FAST)
    head = (torch.randn(WIDTH, WORDS, device=DEVICE, dtype=FAST) / 8).requires_grad_()
    labels = torch.randint(WORDS, (TOKENS,), device=DEVICE)

    def step() -> None:
        loss(hidden, head, labels).backward()  # type: ignore[no-untyped-call]
        head.grad = None

    return step


def sick() -> Callable[[], object]:
    return _step(_loss)


def healthy() -> Callable[[], object]:
    return _step(torch.compile(_loss))
