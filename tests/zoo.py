"""Ten model families in small, built from configurations and never from downloaded weights."""

from collections.abc import Callable

import torch
import transformers as hf
from torch import nn
from torch.nn import functional

from gobrrr import Workload

VOCABULARY, WIDTH, LENGTH, BATCH = 96, 64, 24, 2


def _trained(model: nn.Module, inputs: object, loss: Callable | None = None) -> Workload:
    return Workload(model, inputs, loss=loss, optimizer=torch.optim.AdamW(model.parameters()))


def _ids(length: int = LENGTH) -> torch.Tensor:
    return torch.randint(1, VOCABULARY, (BATCH, length))


def bert(attention: str = "sdpa") -> Workload:
    config = hf.BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        attn_implementation=attention,
    )
    ids = _ids()
    return _trained(hf.BertForMaskedLM(config), {"input_ids": ids, "labels": ids})


def gpt2() -> Workload:
    config = hf.GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=2, n_head=4, n_positions=LENGTH)
    ids = _ids()
    return _trained(hf.GPT2LMHeadModel(config), {"input_ids": ids, "labels": ids})


def llama(key_value_heads: int = 2) -> Workload:
    config = hf.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=key_value_heads,
        intermediate_size=3 * WIDTH,
        use_cache=False,
    )
    ids = _ids()
    return _trained(hf.LlamaForCausalLM(config), {"input_ids": ids, "labels": ids})


def vit() -> Workload:
    config = hf.ViTConfig(
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=4 * WIDTH,
        image_size=32,
        patch_size=8,
        num_labels=10,
    )
    model = hf.ViTForImageClassification(config)
    return _trained(model, {"pixel_values": torch.randn(BATCH, 3, 32, 32), "labels": torch.randint(10, (BATCH,))})


def resnet50() -> Workload:
    model = hf.ResNetForImageClassification(hf.ResNetConfig(num_labels=10))
    return _trained(model, {"pixel_values": torch.randn(BATCH, 3, 64, 64), "labels": torch.randint(10, (BATCH,))})


def t5() -> Workload:
    config = hf.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_kv=16,
        d_ff=4 * WIDTH,
        num_layers=2,
        num_heads=4,
        use_cache=False,
        decoder_start_token_id=0,
    )
    return _trained(hf.T5ForConditionalGeneration(config), {"input_ids": _ids(), "labels": _ids(8)})


def mixtral() -> Workload:
    config = hf.MixtralConfig(
        vocab_size=VOCABULARY,
        hidden_size=WIDTH,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        intermediate_size=2 * WIDTH,
        num_local_experts=4,
        num_experts_per_tok=2,
        use_cache=False,
        experts_implementation="grouped_mm",
    )
    ids = _ids()
    return _trained(hf.MixtralForCausalLM(config).bfloat16(), {"input_ids": ids, "labels": ids})


def whisper() -> Workload:
    config = hf.WhisperConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=4 * WIDTH,
        decoder_ffn_dim=4 * WIDTH,
        num_mel_bins=16,
        max_source_positions=32,
        max_target_positions=LENGTH,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        use_cache=False,
    )
    model = hf.WhisperForConditionalGeneration(config)
    return _trained(model, {"input_features": torch.randn(BATCH, 16, 64), "labels": _ids(8)})


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.lstm = nn.Embedding(VOCABULARY, WIDTH), nn.LSTM(WIDTH, 48, num_layers=2, batch_first=True)
        self.head = nn.Linear(48, VOCABULARY)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(self.embedding(ids))[0])


def lstm() -> Workload:
    ids = _ids()
    return _trained(LSTM(), ids, lambda logits: functional.cross_entropy(logits.flatten(0, 1), ids.flatten()))


def _twice(inner: int, outer: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inner, outer, 3, padding=1),
        nn.GroupNorm(4, outer),
        nn.SiLU(),
        nn.Conv2d(outer, outer, 3, padding=1, groups=4),
        nn.BatchNorm2d(outer),
        nn.ReLU(inplace=True),
    )


class UNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.down, self.middle, self.up = _twice(3, 16), _twice(16, 32), _twice(32, 16)
        self.rise = nn.ConvTranspose2d(32, 16, 2, stride=2)
        self.head = nn.Conv2d(16, 3, 1)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        skip = self.down(image)
        deep = self.middle(functional.dropout(functional.max_pool2d(skip, 2), 0.1))
        smooth = functional.interpolate(functional.avg_pool2d(skip, 2), scale_factor=2, mode="bilinear")
        return self.head(self.up(torch.cat([skip + smooth, self.rise(deep)], dim=1)))


def unet() -> Workload:
    image = torch.randn(BATCH, 3, 32, 32)
    return _trained(UNet(), image, lambda output: functional.mse_loss(output, image))


FAMILIES: dict[str, Callable[[], Workload]] = {
    "BERT": bert,
    "GPT-2": gpt2,
    "Llama with grouped-query attention": llama,
    "ViT": vit,
    "ResNet-50": resnet50,
    "T5": t5,
    "Mixtral": mixtral,
    "Whisper": whisper,
    "LSTM": lstm,
    "U-Net": unet,
}
