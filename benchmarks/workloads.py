"""Workloads whose limiter is known: `gobrrr examine benchmarks/workloads.py:bert_large`.

By default they have the sizes of a large GPU; `regimes.py` and `step_time.py` take some of them smaller, for a CPU.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import transformers

from gobrrr import Workload

Step = Callable[[], object]

DEVICE = str(torch.accelerator.current_accelerator(check_available=True) or "cpu")


# Bandwidth


def pointwise_chain(elements: int = 1 << 28, device: str = DEVICE) -> Step:
    x = torch.randn(elements, device=device)
    return lambda: (x * 2).add(1.0).relu()


def pointwise_chain_in_place(elements: int = 1 << 28, device: str = DEVICE) -> Step:
    """Into one buffer: on a CPU fresh memory costs a page fault for every 4 KiB, more than the bytes themselves."""
    x, y = torch.randn(2, elements, device=device)
    return lambda: torch.mul(x, 2, out=y).add_(1.0).relu_()


def row_statistics(rows: int = 1 << 18, columns: int = 1024, device: str = DEVICE) -> Step:
    x = torch.randn(rows, columns, device=device)
    weight, bias = torch.randn(2, columns, device=device)
    return lambda: torch.nn.functional.layer_norm(x, (columns,), weight, bias).sum(-1)


def gathered_rows(table_rows: int = 1 << 22, columns: int = 64, picked: int = 1 << 22, device: str = DEVICE) -> Step:
    table = torch.randn(table_rows, columns, device=device)
    indices = torch.randint(table_rows, (picked,), device=device)
    return lambda: torch.nn.functional.embedding(indices, table)


def matrix_vector_products(size: int = 16384, matrices: int = 4, device: str = DEVICE) -> Step:
    layers = torch.randn(matrices, size, size, device=device) / size**0.5
    first = torch.randn(size, device=device)

    def step() -> torch.Tensor:
        x = first
        for layer in layers:
            x = layer @ x
        return x

    return step


# Compute


def matmul_chain(size: int = 8192, dtype: torch.dtype = torch.bfloat16, device: str = DEVICE) -> Step:
    a = torch.randn(size, size, device=device, dtype=dtype) * 0.01

    def step() -> torch.Tensor:
        b = a
        for _ in range(6):
            b = b @ a
        return b

    return step


def transformer_block(width: int = 4096, batch: int = 16, tokens: int = 512, device: str = DEVICE) -> Step:
    block = torch.nn.TransformerEncoderLayer(width, width // 64, 4 * width, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(batch, tokens, width, device=device)

    def step() -> None:
        block(x).square().mean().backward()
        block.zero_grad()

    return step


def convolutions(channels: int = 256, size: int = 56, batch: int = 64, device: str = DEVICE) -> Step:
    layers = torch.nn.Sequential(*(torch.nn.Conv2d(channels, channels, 3, padding=1) for _ in range(3))).to(device)
    x = torch.randn(batch, channels, size, size, device=device)

    def step() -> torch.Tensor:
        with torch.no_grad():
            return layers(x)

    return step


# Overhead


def tiny_with_sync(device: str = DEVICE) -> Step:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(20))).to(device)
    x = torch.randn(4, 8, device=device)
    return lambda: model(x).sum().item()


def tiny_training(device: str = DEVICE) -> Step:
    model = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(8, 16, device=device)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return step


def many_tiny_ops(device: str = DEVICE) -> Step:
    x = torch.randn(16, device=device)

    def step() -> torch.Tensor:
        y = x
        for _ in range(200):
            y = y * 0.5 + x
        return y

    return step


def tiny_lstm(tokens: int = 32, width: int = 16, device: str = DEVICE) -> Step:
    """Written out, a gate at a time, as in a course."""
    x = torch.randn(tokens, 1, width, device=device)
    into, again = torch.randn(2, width, 4 * width, device=device)

    def step() -> torch.Tensor:
        hidden = cell = torch.zeros(1, width, device=device)
        for token in x:
            i, f, g, o = (token @ into + hidden @ again).chunk(4, dim=-1)
            cell = f.sigmoid() * cell + i.sigmoid() * g.tanh()
            hidden = o.sigmoid() * cell.tanh()
        return hidden

    return step


# Models


def bert_large(**config: Any) -> Step:
    return _training(_bert(**config))


def bert_large_eager_attention(**config: Any) -> Step:
    return _training(_bert(attn_implementation="eager", **config))


def bert_large_compiled(**config: Any) -> Step:
    return _training(_bert(**config), compiled=True)


def bert_large_forward(batch: int = 1, **config: Any) -> Workload:
    model = _bert(**config).bfloat16().eval()
    return Workload(model, {"input_ids": torch.randint(model.config.vocab_size, (batch, 64), device=model.device)})


def gpt2(**config: Any) -> Step:
    return _training(_gpt2(**config), tokens=1024)


def gpt2_compiled(**config: Any) -> Step:
    return _training(_gpt2(**config), tokens=1024, compiled=True)


def llama_decode(position: int = 128, **config: Any) -> Step:
    """One token of a 1.1-billion-parameter model at batch 1, compiled and graphed, always at the same position."""
    return _decoding(partial(torch.compile, mode="reduce-overhead", fullgraph=True), position, **config)


def llama_decode_compiled(position: int = 128, **config: Any) -> Step:
    return _decoding(partial(torch.compile, fullgraph=True), position, **config)


def llama_decode_eager(position: int = 128, **config: Any) -> Step:
    return _decoding(lambda decoded: decoded, position, **config)


def _decoding(compiled: Callable[..., Any], position: int, **config: Any) -> Step:
    sizes = {
        "hidden_size": 2048,
        "num_hidden_layers": 22,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "intermediate_size": 5632,
        "vocab_size": 32000,
    }
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(
            transformers.LlamaConfig(**{"dtype": torch.bfloat16} | sizes | config)
        ).eval()
        ids = torch.randint(model.config.vocab_size, (1, position + 1))
        cache = transformers.StaticCache(config=model.config, max_cache_len=2 * position)
    with torch.no_grad():
        model(input_ids=ids[:, :-1], past_key_values=cache)  # eager: a cache is allocated by its first use

    def decoded(token: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = model(input_ids=token, past_key_values=cache).logits
        for layer in cache.layers:
            layer.cumulative_length.sub_(1)
        return logits

    token, decode = ids[:, -1:].clone(), compiled(decoded)

    def step() -> torch.Tensor:
        with torch.no_grad():
            logits: torch.Tensor = decode(token)
        return logits

    return step


def _bert(**config: Any) -> transformers.BertForMaskedLM:
    sizes = {"hidden_size": 1024, "num_hidden_layers": 24, "num_attention_heads": 16, "intermediate_size": 4096}
    with torch.device(DEVICE):
        return transformers.BertForMaskedLM(transformers.BertConfig(**sizes | config))


def _gpt2(**config: Any) -> transformers.GPT2LMHeadModel:
    with torch.device(DEVICE):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(**config))


def _training(model: Any, tokens: int = 512, *, compiled: bool = False) -> Step:
    """Eight rows of random tokens, bf16 autocast over fp32 weights, AdamW."""
    tokens = min(tokens, model.config.max_position_embeddings)
    ids = torch.randint(model.config.vocab_size, (8, tokens), device=model.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
    called = torch.compile(model) if compiled else model

    def step() -> None:
        with torch.autocast(ids.device.type, torch.bfloat16):
            loss = called(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return step
