"""A GPT in fifty lines, and the training step of it that `gobrrr demo` examines."""

import torch
from torch import nn
from torch.nn import functional

from gobrrr import Workload


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm, self.mlp_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.attention_norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(-2))
        return x + self.mlp(self.mlp_norm(x))  # type: ignore[no-any-return]


class Transformer(nn.Module):
    def __init__(self, *, vocabulary: int, width: int, heads: int, layers: int, length: int) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Logits, or with labels the loss: what has a batch comes in as an input, so that it can be doubled."""
        positions = torch.arange(ids.shape[1], device=ids.device)
        logits = self.head(self.norm(self.blocks(self.tokens(ids) + self.positions(positions))))
        return logits if labels is None else functional.cross_entropy(logits.flatten(0, 1), labels.flatten())


def training() -> Workload:
    """Small enough that two cores take a tenth of a second."""
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    model = Transformer(vocabulary=4096, width=256, heads=4, layers=4, length=128).to(device)
    ids = torch.randint(4096, (4, 128), device=device)
    return Workload(model, (ids, ids), optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4))
