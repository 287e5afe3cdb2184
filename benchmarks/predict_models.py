"""Whole models of the public tables, counted on fake tensors as the tables say they were run.

Counts are kept in a folder (benchmarks/counts.py). timm's models need timm, which brings torchvision; without it only
those already counted are scored.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from math import log
from pathlib import Path

import torch
import transformers
from benchmarks import vision_counts
from benchmarks.counts import counted, inference
from benchmarks.predict_tables import SWEPT, Cells, Format, LeftOut, Row, accelerator, columns, read
from benchmarks.vision_counts import Image, count_missing
from benchmarks.workers import worked
from benchmarks.workloads import llama_decode_eager

from gobrrr.predict.accelerator import Accelerator, with_power
from gobrrr.predict.cast import cast
from gobrrr.predict.host import host_of
from gobrrr.predict.spread import Family, interval
from gobrrr.predict.step import Step, Variant, step
from gobrrr.work.program import Program


def stepped(table: str, device: Accelerator, measured_s: float, predicted: Step) -> Row:
    spread = log(interval(predicted.family_s, predicted.step_s, device.name).high_s / predicted.step_s)
    return Row((table,), device.name, measured_s, predicted.step_s, Family.HOST, spread=spread)


def transformer(config: Path, tokens: int, batch: int) -> Callable[[], object]:
    settings = transformers.AutoConfig.for_model(**json.loads(config.read_text()), use_cache=False)
    is_bert = settings.model_type == "bert"
    kind = transformers.AutoModelForSequenceClassification if is_bert else transformers.AutoModelForCausalLM
    return inference(
        kind.from_config(settings, attn_implementation="eager"), torch.ones(batch, tokens, dtype=torch.long)
    )


def whole_models(cells: Cells, device: Accelerator, configs: Path, counts: Path) -> Row:
    model = cells.text("model")
    config = configs / f"{model}.json"
    if not config.exists():
        raise LeftOut(f"{configs.name} has no {config.name}")
    if cells.text("mode") != "inf":
        raise LeftOut(f"mode is {cells['mode']!r}, not inf")
    tokens, batch, measured = cells.count("seqlen"), cells.count("batch"), cells.positive("e2e_ms") / 1e3
    program = known(counted(f"{model}-{tokens}-{batch}", partial(transformer, config, tokens, batch), counts), model)
    return stepped("whole_model", device, measured, step(program.ops, device, host_of(device)))


def known(program: Program | None, model: str) -> Program:
    if program is None:
        raise LeftOut(f"{model} cannot be built or counted")
    return program


def resnet(batch: int, *, half: bool) -> Callable[[], object]:
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig())
    return inference(model, torch.randn(batch, 3, 224, 224), torch.float16 if half else None)


def convnets(cells: Cells, device: Accelerator, counts: Path) -> Row:
    """ResNet-50 by batch size, synchronised each step. Other networks of the same tables are left out."""
    table, half, mode = cells.one_of("precision", CONVNET_PRECISIONS)
    if not cells.text("model").startswith("resnet50"):
        raise LeftOut(f"model is {cells['model']!r}, not resnet50")
    batch, measured = cells.count("batch"), cells.positive("latency_ms") / 1e3
    program = known(counted(f"resnet50-{batch}-{half}", partial(resnet, batch, half=half), counts), "resnet50")
    ops = cast(program.ops, mode) if mode else program.ops
    predicted = step(ops, device, host_of(device), synchronised=True)
    return replace(stepped(table, device, measured, predicted), workload=SWEPT, items=batch)


CONVNET_PRECISIONS = {
    "FP32": ("convnet fp32", False, None),
    "TF32": ("convnet tf32", False, "tf32"),
    "Mixed Precision": ("convnet mixed", True, None),
}
"""Table, whether under autocast, and what products of fp32 are multiplied in."""


LLAMAS: dict[str, dict[str, int]] = {
    "Llama-2-7B": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_key_value_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
    },
    "Llama-3.1-8B": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_key_value_heads": 8,
        "intermediate_size": 14336,
        "vocab_size": 128256,
    },
}
DECODED_AT = 105
"""A prompt of 5 tokens and 200 after it, halfway."""


def decodes(cells: Cells, device: Accelerator, counts: Path) -> Row:
    """Tokens a second at batch 1, compiled and graphed. Quantized weights and several cards are left out."""
    technique, model = cells.text("technique"), cells.text("model")
    if technique.split()[0] != "bf16" or cells.text("tp") != "1":
        raise LeftOut(f"{technique} on {cells['tp']} cards, not bf16 on one")
    sizes, measured = cells.one_of("model", LLAMAS), 1 / cells.positive("tokens_per_s")
    if limit := re.search(r"power limit (\d+) ?W", cells["gpu"]):
        device = with_power(device, float(limit[1]))
    factory = partial(llama_decode_eager, DECODED_AT, **sizes)
    program = known(counted(f"decode-{model}", factory, counts, traced=True), model)
    return stepped("decode", device, measured, step(program.ops, device, host_of(device), Variant.COMPILED_GRAPHED))


def model_formats(folder: Path, counts: Path) -> dict[str, Format]:
    """Of a folder of tables, in which `whole_model_configs` lies."""
    configs = next(folder.rglob("whole_model_configs"), folder / "whole_model_configs")
    return {
        "whole_model": Format(
            partial(whole_models, configs=configs, counts=counts), columns("gpu model mode seqlen batch e2e_ms")
        ),
        "convnet": Format(partial(convnets, counts=counts), columns("gpu model precision batch latency_ms")),
        "decode": Format(partial(decodes, counts=counts), columns("gpu model technique tp tokens_per_s")),
    }


VISION = columns("model infer_img_size infer_batch_size infer_step_time")
CHUNK = 16
"""Models that a process takes at once: estimates of one are remembered for the next."""
_NAMED = re.compile(
    r"(?:.*-)?infer-(?P<precision>amp|amp_bf16|bf16|fp16|fp32)-(?P<layout>nchw|nhwc)-(?P<torch>pt\d+)-(?:cu\d+-)?"
    r"(?P<card>.+?)(?P<dynamo>-dynamo)?"
)


@dataclass(frozen=True, slots=True)
class Vision:
    """`infer-PRECISION-LAYOUT-ptNNN-cuNNN-CARD[-dynamo].csv`: how all models of a table were run."""

    path: Path
    precision: str
    last: bool
    torch: str
    device: Accelerator
    compiled: bool

    @classmethod
    def of(cls, path: Path) -> "Vision":
        named = _NAMED.fullmatch(path.stem)
        if named is None:
            raise LeftOut("its name is not of the form infer-PRECISION-LAYOUT-ptNNN-cuNNN-CARD[-dynamo].csv")
        device = accelerator(named["card"])
        return cls(path, named["precision"], named["layout"] == "nhwc", named["torch"], device, bool(named["dynamo"]))

    @property
    def table(self) -> str:
        precision = "" if self.precision == "amp" else f"{self.precision} "
        return f"vision {precision}{'nhwc' if self.last else 'nchw'}{'-dynamo' if self.compiled else ''}"

    def images(self, left_out: Counter[str]) -> Iterator[tuple[Image, float]]:
        """With their measured seconds."""
        for cells in read(self.path):
            try:
                side, batch = cells.count("infer_img_size"), cells.count("infer_batch_size")
                image = Image(cells.text("model"), side, self.last, batch, self.precision)
                yield image, cells.positive("infer_step_time") / 1e3
            except LeftOut as why:
                left_out[str(why)] += 1


def vision_models(table: Vision, counts: Path, left_out: Counter[str]) -> Iterator[Row]:
    measured = list(table.images(left_out))
    rows = worked(partial(vision_row, table, counts), measured, f"models predicted for {table.path.stem}", chunk=CHUNK)
    for row in rows:
        if row is None:
            left_out["timm does not build the model, or its step cannot be counted"] += 1
        else:
            yield row


def vision_row(table: Vision, counts: Path, measured: tuple[Image, float]) -> Row | None:
    image, seconds = measured
    program = vision_counts.program(image, counts)
    if program is None:
        return None
    variant = Variant.COMPILED if table.compiled else Variant.EAGER
    predicted = step(program.ops, table.device, host_of(table.device), variant, synchronised=True)
    row = stepped(table.table, table.device, seconds, predicted)
    return replace(row, workload=f"{image.model} {image.side} {table.torch}", items=image.batch)


def count_images(tables: Iterable[Vision], counts: Path) -> None:
    """Of all tables at once: a model is built once for its images in all of them."""
    count_missing((image for table in tables for image, _ in table.images(Counter())), counts)
