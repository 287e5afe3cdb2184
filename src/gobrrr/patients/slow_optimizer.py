"""B207: AdamW tensor by tensor, op by op; its twin is fused."""

import torch
from torch import nn

from gobrrr import Workload
from gobrrr.patients.body import DEVICE, FAST, sized


def _training(*, fused: bool) -> Workload:
    width, rows = sized(256, 2048), sized(16, 4096)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(24))).to(DEVICE, FAST)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=fused, foreach=False)
    x = torch.randn(rows, width, device=DEVICE, dtype=FAST)
    return Workload(model, x, loss=torch.sum, optimizer=optimizer)


def sick() -> Workload:
    return _training(fused=False)


def healthy() -> Workload:
    return _training(fused=True)
