"""A small GPT and two things to do with it: `gobrrr examine examples/transformer.py:training`."""

import torch

from gobrrr import Workload
from gobrrr.patients.transformer import Transformer

VOCABULARY, WIDTH, HEADS, LAYERS, BATCH, LENGTH = 8192, 512, 8, 6, 4, 256
DEVICE = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")


def _model() -> Transformer:
    return Transformer(vocabulary=VOCABULARY, width=WIDTH, heads=HEADS, layers=LAYERS, length=LENGTH).to(DEVICE)


def _ids() -> torch.Tensor:
    return torch.randint(VOCABULARY, (BATCH, LENGTH), device=DEVICE)


def training() -> Workload:
    """Labels are inputs, beside the ids: a loss that held them could not be run on twice the batch."""
    model, ids = _model(), _ids()
    return Workload(model, {"ids": ids, "labels": ids}, optimizer=torch.optim.AdamW(model.parameters(), lr=1e-4))


def inference() -> Workload:
    return Workload(_model().eval(), _ids())
