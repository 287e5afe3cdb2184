"""B305: sequences padded to eight times their length; its twin's are padded to their own."""

import torch
from torch import nn

from gobrrr import Workload
from gobrrr.patients.body import DEVICE, FAST, sized

WORDS, WIDTH = 4096, sized(128, 1024)


class Tagger(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH) for _ in range(8)))

    def forward(self, ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.layers(self.words(ids)) * attention_mask[..., None]  # type: ignore[no-any-return]


def _tagging(padded: int) -> Workload:
    rows, length = sized(8, 128), sized(32, 256)
    ids = torch.randint(WORDS, (rows, padded * length), device=DEVICE)
    mask = (torch.arange(padded * length, device=DEVICE) < length).to(FAST).expand(rows, -1)
    return Workload(Tagger().to(DEVICE, FAST), {"ids": ids, "attention_mask": mask})


def sick() -> Workload:
    return _tagging(8)


def healthy() -> Workload:
    return _tagging(1)
