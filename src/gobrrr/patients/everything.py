"""A GPT with everything wrong that one sees in the wild, and the same with none of it."""

import math
from collections.abc import Callable

import torch
from torch import nn
from torch.nn import functional

from gobrrr.patients.body import DEVICE, FAST, sized

WIDTH, HEADS, LAYERS = sized(128, 768), sized(4, 12), sized(2, 6)
BATCH, TOKENS, WORDS = sized(2, 8), sized(256, 1024), sized(8191, 50257)


class Norm(nn.Module):
    """Written out."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * (x.pow(2).mean(-1, keepdim=True) + 1e-6).rsqrt() * self.weight


def written_out_gelu(x: torch.Tensor) -> torch.Tensor:
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


def written_out_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    future = torch.ones(TOKENS, TOKENS, dtype=torch.bool, device=q.device).triu(1)
    scores: torch.Tensor = (q @ k.mT / (WIDTH // HEADS) ** 0.5).masked_fill(future, float("-inf"))
    return scores.softmax(-1) @ v


def fused_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


class Block(nn.Module):
    def __init__(self, *, sick: bool) -> None:
        super().__init__()
        self.norm, self.mlp_norm = (Norm() if sick else nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.attention = written_out_attention if sick else fused_attention
        self.activation = written_out_gelu if sick else functional.gelu

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, HEADS, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(self.attention(q, k, v).transpose(1, 2).flatten(-2))
        more: torch.Tensor = self.down(self.activation(self.up(self.mlp_norm(x))))
        return x + more


class GPT(nn.Module):
    def __init__(self, words: int, *, sick: bool) -> None:
        super().__init__()
        self.words, self.positions = nn.Embedding(words, WIDTH), nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.Sequential(*(Block(sick=sick) for _ in range(LAYERS)))
        self.head = nn.Linear(WIDTH, words, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        places = torch.arange(TOKENS, device=ids.device)
        logits = self.head(self.blocks(self.words(ids) + self.positions(places)))
        return functional.cross_entropy(logits.flatten(0, 1).float(), ids.flatten())


def sick() -> Callable[[], object]:
    """In fp32, an odd number of words, all written out, gradients looked at one by one, the loss read every step."""
    model = GPT(WORDS, sick=True).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, foreach=False)
    ids = torch.randint(WORDS, (BATCH, TOKENS), device=DEVICE)

    def step() -> float:
        loss: torch.Tensor = model(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        token_norms = [row.norm() for row in model.words.weight.grad[:2048]]  # type: ignore[index]
        torch.stack(token_norms).max()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def healthy() -> Callable[[], object]:
    """In bf16, compiled, with words padded to a multiple of 64, fused, nothing read back."""
    model = GPT(64 * math.ceil(WORDS / 64), sick=False).to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(WORDS, (BATCH, TOKENS), device=DEVICE)
    compiled = torch.compile(model)

    def step() -> None:
        with torch.autocast(DEVICE.type, torch.bfloat16, enabled=FAST is torch.bfloat16):
            loss: torch.Tensor = compiled(ids)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        optimizer.zero_grad()

    return step
