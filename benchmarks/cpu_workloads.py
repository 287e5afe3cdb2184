"""Workloads of a size for two cores: `python benchmarks/treat.py benchmarks/cpu_workloads.py:resnet18 RESULTS`."""

from itertools import pairwise

import torch
import transformers
from torch import nn

import workloads
from gobrrr import Workload


class Residual(nn.Module):
    """Two convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first, self.first_norm = nn.Conv2d(before, after, 3, stride, 1, bias=False), nn.BatchNorm2d(after)
        self.second, self.second_norm = nn.Conv2d(after, after, 3, 1, 1, bias=False), nn.BatchNorm2d(after)
        around = [nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after)]
        self.around = nn.Sequential(*(around if stride > 1 or before != after else []))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.first_norm(self.first(x)).relu()
        return (self.second_norm(self.second(y)) + self.around(x)).relu()


def resnet18(batch: int = 2, size: int = 160) -> Workload:
    widths = (64, 64, 128, 256, 512)
    stages = [
        part
        for before, after in pairwise(widths)
        for part in (Residual(before, after, 1 if before == after else 2), Residual(after, after, 1))
    ]
    stem = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 1000)]
    return Workload(nn.Sequential(*stem, *stages, *head).eval(), torch.randn(batch, 3, size, size))


def bert_inference(batch: int = 2, tokens: int = 256) -> Workload:
    config = transformers.BertConfig(
        hidden_size=512, num_hidden_layers=4, num_attention_heads=8, intermediate_size=2048, attn_implementation="eager"
    )
    model = transformers.BertModel(config).eval()
    return Workload(model, {"input_ids": torch.randint(config.vocab_size, (batch, tokens))})


def llama_decode() -> workloads.Step:
    sizes = {"hidden_size": 256, "num_hidden_layers": 6, "num_attention_heads": 8, "num_key_value_heads": 8}
    return workloads.llama_decode_eager(64, **sizes, intermediate_size=768, vocab_size=8000, dtype=torch.float32)


def small_lm(vocabulary: int = 16000, width: int = 256, tokens: int = 512) -> Workload:
    layer = nn.TransformerEncoderLayer(width, 4, 4 * width, dropout=0.0, batch_first=True)
    model = nn.Sequential(
        nn.Embedding(vocabulary, width), nn.TransformerEncoder(layer, 4), nn.Linear(width, vocabulary)
    )
    ids = torch.randint(vocabulary, (1, tokens))

    def loss(logits: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(logits.flatten(0, 1), ids.flatten())

    return Workload(model, ids, loss=loss, optimizer=torch.optim.AdamW(model.parameters(), foreach=False))
