"""Workloads with a known limiter on a large GPU: `gobrrr examine benchmarks/workloads.py:bert_large`."""

from collections.abc import Callable

import torch
import transformers

DEVICE = "cuda"


def pointwise_chain() -> Callable[[], object]:
    x = torch.randn(1 << 28, device=DEVICE)
    return lambda: (x * 2).add(1.0).relu()


def matmul_chain() -> Callable[[], object]:
    a = torch.randn(8192, 8192, device=DEVICE, dtype=torch.bfloat16) * 0.01

    def step() -> torch.Tensor:
        b = a
        for _ in range(6):
            b = b @ a
        return b

    return step


def tiny_with_sync() -> Callable[[], object]:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(20))).to(DEVICE)
    x = torch.randn(4, 8, device=DEVICE)
    return lambda: model(x).sum().item()


def bert_large() -> Callable[[], object]:
    config = transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096
    )
    with torch.device(DEVICE):
        return _training(transformers.BertForMaskedLM(config), torch.randint(30522, (8, 512)))


def gpt2() -> Callable[[], object]:
    with torch.device(DEVICE):
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config())
        return _training(model, torch.randint(50257, (8, 1024)))


def _training(model: torch.nn.Module, ids: torch.Tensor) -> Callable[[], object]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)

    def step() -> None:
        with torch.autocast(DEVICE, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
