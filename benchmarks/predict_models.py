"""Whole models of the public tables, counted on fake tensors as the tables say they were run.

Counts are kept in a folder (benchmarks/counts.py). timm's models need timm, which brings torchvision; without it only
those already counted are scored.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path

import torch
import transformers
from benchmarks import vision_counts
from benchmarks.counts import counted, inference
from benchmarks.predict_tables import SWEPT, Find, Row, read
from benchmarks.vision_counts import Image, count_missing
from benchmarks.workers import worked
from benchmarks.workloads import llama_decode_eager

from gobrrr.predict.accelerator import Accelerator, with_power
from gobrrr.predict.host import host_of
from gobrrr.predict.spread import Family, interval
from gobrrr.predict.step import Step, Variant, step


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


def whole_models(path: Path, find: Find, counts: Path) -> Iterator[Row]:
    for cells in read(path):
        device = find(cells["gpu"])
        config = path.parent / "whole_model_configs" / f"{cells['model']}.json"
        if device is None or not config.exists() or cells["mode"] != "inf":
            continue
        tokens, batch = int(cells["seqlen"]), int(cells["batch"])
        name = f"{cells['model']}-{tokens}-{batch}"
        program = counted(name, partial(transformer, config, tokens, batch), counts)
        if program is not None:
            measured = float(cells["e2e_ms"]) / 1e3
            yield stepped("whole_model", device, measured, step(program.ops, device, host_of(device)))


def resnet(batch: int, *, half: bool) -> Callable[[], object]:
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig())
    return inference(model, torch.randn(batch, 3, 224, 224), half=half)


def convnets(path: Path, find: Find, counts: Path) -> Iterator[Row]:
    """ResNet-50 by batch size, synchronised each step. Other networks of the same tables are left out."""
    for cells in read(path):
        device = find(cells["gpu"])
        if (
            device is None
            or not cells["model"].startswith("resnet50")
            or cells["precision"] not in ("FP32", "Mixed Precision")
        ):
            continue
        batch, half = int(cells["batch"]), cells["precision"] == "Mixed Precision"
        program = counted(f"resnet50-{batch}-{half}", partial(resnet, batch, half=half), counts)
        if program is not None:
            predicted = step(program.ops, device, host_of(device), synchronised=True)
            row = stepped(f"convnet {'mixed' if half else 'fp32'}", device, float(cells["latency_ms"]) / 1e3, predicted)
            yield replace(row, workload=SWEPT, items=batch)


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


def decodes(path: Path, find: Find, counts: Path) -> Iterator[Row]:
    """Tokens a second at batch 1, compiled and graphed. Quantized weights and several cards are left out."""
    for cells in read(path):
        is_plain = cells["technique"].split()[0] == "bf16" and cells["tp"] == "1"
        name, _, limit = cells["gpu"].partition("(power limit ")
        device = find(name) if is_plain and cells["model"] in LLAMAS else None
        if device is None:
            continue
        if limit:
            device = with_power(device, float(limit.split()[0]))
        factory = partial(llama_decode_eager, DECODED_AT, **LLAMAS[cells["model"]])
        program = counted(f"decode-{cells['model']}", factory, counts, traced=True)
        if program is not None:
            predicted = step(program.ops, device, host_of(device), Variant.COMPILED_GRAPHED)
            yield stepped("decode", device, 1 / float(cells["tokens_per_s"]), predicted)


VISION = "infer-amp-*.csv"
CHUNK = 16
"""Models that a process takes at once: estimates of one are remembered for the next."""
_NAMED = re.compile(r"infer-amp-(nchw|nhwc)-pt\d+-cu\d+-(.+?)(-dynamo)?")


def vision_models(path: Path, find: Find, counts: Path) -> Iterator[Row]:
    """`infer-amp-LAYOUT-ptNNN-cuNNN-CARD[-dynamo].csv`. Models of all such tables in the folder are counted at once."""
    named = _NAMED.fullmatch(path.stem)
    device = find(named[2]) if named else None
    if named is None or device is None:
        return
    count_missing((image for table in path.parent.glob(VISION) for image, _ in images(table)), counts)
    variant = Variant.COMPILED if named[3] else Variant.EAGER
    predict = partial(vision_row, f"vision {named[1]}{named[3] or ''}", device, variant, counts)
    rows = worked(predict, list(images(path)), f"models predicted for {path.stem}", chunk=CHUNK)
    yield from (row for row in rows if row is not None)


def vision_row(
    table: str, device: Accelerator, variant: Variant, counts: Path, measured: tuple[Image, float]
) -> Row | None:
    image, seconds = measured
    program = vision_counts.program(image, counts)
    if program is None:
        return None
    predicted = step(program.ops, device, host_of(device), variant, synchronised=True)
    row = stepped(table, device, seconds, predicted)
    return replace(row, workload=f"{image.model} {image.side}", items=image.batch)


def images(path: Path) -> Iterator[tuple[Image, float]]:
    """Of a table, with their measured seconds."""
    last = "-nhwc-" in path.stem
    for cells in read(path):
        side, batch = int(cells["infer_img_size"]), int(cells["infer_batch_size"])
        yield Image(cells["model"], side, last, batch), float(cells["infer_step_time"]) / 1e3


MODEL_FORMATS: dict[str, Callable[[Path, Find, Path], Iterable[Row]]] = {
    "whole_model*.csv": whole_models,
    "convnet_batch_sweep*.csv": convnets,
    "decode_batch1*.csv": decodes,
    VISION: vision_models,
}
