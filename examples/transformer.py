"""A small GPT and two things to do with it: `gobrrr count examples/transformer.py:training`."""

import torch
from torch import nn
from torch.nn import functional

from gobrrr import Workload

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 8192, 512, 8, 6, 4, 256


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.mlp_norm(x))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        positions = torch.arange(ids.shape[1], device=ids.device)
        return self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))


def _device() -> torch.device:
    return torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _ids(device: torch.device) -> torch.Tensor:
    return torch.randint(VOCABULARY, (BATCH, LENGTH), device=device)


def training() -> Workload:
    model, ids = Transformer().to(_device()), _ids(_device())
    return Workload(
        model,
        ids,
        loss=lambda logits: functional.cross_entropy(logits.flatten(0, 1), ids.flatten()),
        optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4),
    )


def inference() -> Workload:
    return Workload(Transformer().to(_device()).eval(), _ids(_device()))
