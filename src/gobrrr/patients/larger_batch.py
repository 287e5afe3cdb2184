"""B602: so few samples at a time that a step is overhead; its twin has enough."""

import torch
from torch import nn

from gobrrr import Workload
from gobrrr.patients.body import DEVICE, FAST, sized


def _training(samples: int) -> Workload:
    width = sized(256, 2048)
    model = nn.Sequential(*(nn.Linear(width, width) for _ in range(8))).to(DEVICE, FAST)
    x = torch.randn(samples, width, device=DEVICE, dtype=FAST)
    return Workload(model, x, loss=torch.sum)


def sick() -> Workload:
    return _training(8)


def healthy() -> Workload:
    return _training(sized(2048, 32768))
