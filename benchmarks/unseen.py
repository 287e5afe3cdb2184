"""Models on which no treatment was developed, for `treat_together.py`: `benchmarks/unseen.py:vit_inference`.

timm's and transformers' own, with weights drawn at random.
"""

from collections.abc import Callable

import torch
import transformers

from gobrrr import Workload

Step = Callable[[], object]

DEVICE = str(torch.accelerator.current_accelerator(check_available=True) or "cpu")


def convnext_training(batch: int = 64, size: int = 224) -> Step:
    """Depthwise convolutions between layer norms, under bf16 autocast."""
    import timm

    model = timm.create_model("convnext_tiny").to(DEVICE)
    images, labels = torch.randn(batch, 3, size, size, device=DEVICE), torch.randint(1000, (batch,), device=DEVICE)
    return _training(model, lambda: torch.nn.functional.cross_entropy(model(images), labels))


def t5_training(batch: int = 16, tokens: int = 512, answer: int = 128) -> Step:
    """Encoder, decoder and attention from one to the other, with a bias that is learnt, under bf16 autocast."""
    with torch.device(DEVICE):
        model = transformers.T5ForConditionalGeneration(transformers.T5Config(decoder_start_token_id=0))
        ids, labels = torch.randint(model.config.vocab_size, (batch, tokens)), torch.randint(100, (batch, answer))
    return _training(model, lambda: model(input_ids=ids, labels=labels).loss)


def vit_inference(batch: int = 8) -> Workload:
    import timm

    model = timm.create_model("vit_base_patch16_224").to(DEVICE, torch.bfloat16).eval()
    return Workload(model, torch.randn(batch, 3, 224, 224, device=DEVICE, dtype=torch.bfloat16))


def _training(model: torch.nn.Module, loss: Callable[[], torch.Tensor]) -> Step:
    optimizer = torch.optim.AdamW(model.train().parameters(), lr=1e-4)

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.autocast(torch.device(DEVICE).type, torch.bfloat16):
            value = loss()
        value.backward()
        optimizer.step()
        return value.detach()

    return step
