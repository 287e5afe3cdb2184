"""Small subjects for the tests of treatments: one for each that a treatment has something to change in."""

import torch
from torch import nn

from gobrrr.treat.cross_entropy import LEAST
from gobrrr.treat.subject import Subject, subject_of
from gobrrr.workload import Workload


class Block(nn.Module):
    def __init__(self, width: int = 16, dropout: float = 0.0) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.norm, self.drop = nn.LayerNorm(width), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.drop(self.down(nn.functional.gelu(self.up(x)))))


class Attention(nn.Module):
    """Written out, as in a course."""

    def __init__(self, width: int = 16, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            layer(x).unflatten(-1, (self.heads, -1)).transpose(1, 2) for layer in (self.query, self.key, self.value)
        )
        scores = q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5
        return (scores.softmax(dim=-1) @ v).transpose(1, 2).flatten(2)


def training(dropout: float = 0.0, optimizer=torch.optim.AdamW, outputs: int = 4, **options) -> Workload:
    torch.manual_seed(0)
    model = nn.Sequential(Block(dropout=dropout), Block(dropout=dropout), nn.Linear(16, outputs))
    made = optimizer(model.parameters(), lr=1e-2, **options)
    return Workload(model, torch.randn(8, 16), loss=lambda out: out.square().mean(), optimizer=made)


def classifying(classes: int = LEAST // 8) -> Workload:
    """Its loss is torch's, and no part of its model."""
    torch.manual_seed(0)
    model, right = nn.Sequential(Block(), Block(), nn.Linear(16, classes)), torch.randint(classes, (8,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    return Workload(
        model, torch.randn(8, 16), loss=lambda out: nn.functional.cross_entropy(out, right), optimizer=optimizer
    )


class Signs(torch.optim.Optimizer):
    """One's own, parameter by parameter: it goes by the sign of what was usual."""

    def __init__(self, parameters, lr: float = 1e-4, keeps: float = 0.9) -> None:
        super().__init__(parameters, {"lr": lr, "keeps": keeps})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        del closure
        for group in self.param_groups:
            for parameter in group["params"]:
                usual = self.state[parameter].setdefault("usual", torch.zeros_like(parameter))
                usual.lerp_(parameter.grad, 1 - group["keeps"])
                parameter.add_(usual.sign(), alpha=-group["lr"])


CONVOLUTIONS = ("model:0", "model:2")


def convolving(*, to_none: bool = True, **options):
    """A step that trains two convolutions, and their optimizer."""
    torch.manual_seed(0)
    model, x = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 4, 3)), torch.randn(2, 3, 8, 8)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, **options)

    def step() -> float:
        optimizer.zero_grad(set_to_none=to_none)
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.item()

    return step, optimizer


def images() -> Workload:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3)).eval()
    model[1].running_mean.normal_()
    model[1].running_var.uniform_(0.5, 2)
    return Workload(model, torch.randn(2, 3, 16, 16))


def attention() -> Workload:
    torch.manual_seed(0)
    return Workload(nn.Sequential(Attention(), nn.Linear(16, 4)).eval(), torch.randn(2, 5, 16))


def inference(rows: int = 32) -> Workload:
    torch.manual_seed(0)
    return Workload(nn.Sequential(Block(), nn.Linear(16, 4)).eval(), torch.randn(rows, 16))


def containers() -> Workload:
    """Of torch's own modules alone."""
    torch.manual_seed(0)
    blocks = (nn.Sequential(nn.Linear(16, 16), nn.GELU()) for _ in range(2))
    return Workload(nn.Sequential(*blocks).eval(), torch.randn(4, 16))


def bare():
    """A step of one's own, that records what nobody reads."""
    torch.manual_seed(0)
    model, x = nn.Sequential(Block(), nn.Linear(16, 4)).eval(), torch.randn(3, 16)
    return lambda: model(x)


def switched(attention: str = "eager") -> Workload:
    """A model that has a switch for its attention."""
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(**sizes, vocab_size=20, attn_implementation=attention)
    return Workload(transformers.BertModel(config).eval(), {"input_ids": torch.arange(12).reshape(2, 6)})


def modelless():
    torch.manual_seed(0)
    x = torch.randn(100)
    return lambda: (x * 2).add(1).relu()


def scaled():
    """Gradients under a GradScaler: who divides them depends on the optimizer."""
    torch.manual_seed(0)
    model, x, scaler = torch.nn.Linear(16, 8), torch.randn(4, 16), torch.amp.GradScaler("cpu")
    optimizer = torch.optim.AdamW(model.parameters())

    def step():
        optimizer.zero_grad()
        loss = model(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        return loss.detach()

    return step


def subject(made, steps: int = 2) -> Subject:
    """Warm: what lives on from step to step is there."""
    found = subject_of(lambda: made)
    for _ in range(steps):
        found.run()
    return found
