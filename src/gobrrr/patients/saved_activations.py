"""B209: GELU in eight ops, of which nearly all keep something; its twin keeps its input."""

import torch
from torch import nn
from torch.nn import functional

from gobrrr import Workload
from gobrrr.patients.body import DEVICE, FAST, sized


class WrittenOut(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * torch.pow(x, 3.0))))


class Fused(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.gelu(x, approximate="tanh")


def _training(activation: type[nn.Module]) -> Workload:
    width, rows = sized(256, 4096), sized(2048, 16384)
    layers = (layer for _ in range(2) for layer in (nn.Linear(width, width, bias=False), activation()))
    model = nn.Sequential(*layers, nn.Linear(width, width, bias=False)).to(DEVICE, FAST)
    return Workload(model, torch.randn(rows, width, device=DEVICE, dtype=FAST), loss=torch.sum)


def sick() -> Workload:
    return _training(WrittenOut)


def healthy() -> Workload:
    return _training(Fused)
