"""Whole models of the public tables, counted on fake tensors as the tables say they were run.

Counts are kept beside each other in a folder, for counting all vision models takes an hour; delete it when a formula
changes. timm's models need timm, which brings torchvision; without it only those already counted are scored.
"""

import json
import pickle
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from math import log
from pathlib import Path
from typing import Any

import torch
import transformers
from benchmarks.predict_tables import Cells, Find, Row, read

from gobrrr.errors import GobrrrError
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.host import host_of
from gobrrr.predict.spread import Family, interval
from gobrrr.predict.step import Step, Variant, step
from gobrrr.work.count import count_elsewhere
from gobrrr.work.program import Program

COUNTS = Path.home() / ".cache" / "gobrrr" / "counts"


def counted(name: str, factory: Callable[[], Any], counts: Path) -> Program | None:
    """From the folder, or now. None for a model that cannot be built or counted."""
    path = counts / f"{name}.pkl"
    if path.exists():
        held: Program | None = pickle.loads(path.read_bytes())  # noqa: S301 (our own file)
        return held
    try:
        program = count_elsewhere(factory, traced=False)
    except (GobrrrError, ImportError, RuntimeError, ValueError):
        return None
    counts.mkdir(parents=True, exist_ok=True)
    path.write_bytes(pickle.dumps(program))
    return program


def inference(model: torch.nn.Module, inputs: torch.Tensor, *, half: bool = False) -> Callable[[], object]:
    model.eval()

    def run() -> object:
        with torch.no_grad(), torch.autocast("cpu", torch.float16) if half else nullcontext():
            return model(inputs)

    return run


def stepped(table: str, device: Accelerator, measured_s: float, predicted: Step) -> Row:
    spread = log(interval(predicted.family_s, predicted.step_s).high_s / predicted.step_s)
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
            yield stepped(f"convnet {'mixed' if half else 'fp32'}", device, float(cells["latency_ms"]) / 1e3, predicted)


def vision_model(name: str, side: int, batch: int, *, last: bool) -> Callable[[], object]:
    """With norms in half precision, as the tables' own times tell: with group norms in fp32 a ResNet-50 moves twice the
    bytes that its measured time has room for.
    """
    import timm

    timm.layers.set_fast_norm(True)
    model, image = timm.create_model(name), torch.randn(batch, 3, side, side)
    if last:
        model, image = model.to(memory_format=torch.channels_last), image.to(memory_format=torch.channels_last)
    return inference(model, image, half=True)


def vision_models(path: Path, find: Find, counts: Path) -> Iterator[Row]:
    """`infer-amp-LAYOUT-ptNNN-cuNNN-CARD[-dynamo].csv`."""
    named = re.fullmatch(r"infer-amp-(nchw|nhwc)-pt\d+-cu\d+-(.+?)(-dynamo)?", path.stem)
    device = find(named[2]) if named else None
    if named is None or device is None:
        return
    last, variant = named[1] == "nhwc", Variant.COMPILED if named[3] else Variant.EAGER
    table = f"vision {named[1]}{named[3] or ''}"
    for cells in read(path):
        program = vision_program(cells, counts, last=last)
        if program is not None:
            predicted = step(program.ops, device, host_of(device), variant, synchronised=True)
            row = stepped(table, device, float(cells["infer_step_time"]) / 1e3, predicted)
            yield replace(row, workload=cells["model"], items=int(cells["infer_batch_size"]))


def vision_program(cells: Cells, counts: Path, *, last: bool) -> Program | None:
    name, side, batch = cells["model"], int(cells["infer_img_size"]), int(cells["infer_batch_size"])
    return counted(f"{name}_{side}_{batch}_{int(last)}", partial(vision_model, name, side, batch, last=last), counts)


MODEL_FORMATS: dict[str, Callable[[Path, Find, Path], Iterable[Row]]] = {
    "whole_model*.csv": whole_models,
    "convnet_batch_sweep*.csv": convnets,
    "infer-amp-*.csv": vision_models,
}
