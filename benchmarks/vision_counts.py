"""Counts of timm's models: each is built once, on fake tensors, and counted for every image that the tables gave it.

A model takes a second or two.
"""

import gc
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple
from unittest import mock

import torch
from benchmarks.counts import file_of, held, inference, keep
from benchmarks.workers import worked

from gobrrr.errors import GobrrrError
from gobrrr.work.counter import counted_program
from gobrrr.work.cuda_choices import cuda_choices
from gobrrr.work.fake import fake_tensors
from gobrrr.work.program import Program
from gobrrr.workload import user_code

INITIALISERS = [name for name in vars(torch.nn.init) if name.endswith("_") and not name.startswith("_")]
"""Not called: fake parameters have no values, and half of the time of building goes there."""


class Image(NamedTuple):
    model: str
    side: int
    last: bool
    """Channels last."""
    batch: int
    precision: str = "amp"

    def file(self, counts: Path) -> Path:
        precision = "" if self.precision == "amp" else f"_{self.precision}"
        return file_of(counts, f"{self.model}_{self.side}_{self.batch}_{int(self.last)}{precision}")

    @property
    def dtype(self) -> torch.dtype:
        """Of the model and its input."""
        return {"bf16": torch.bfloat16, "fp16": torch.float16}.get(self.precision, torch.float32)

    @property
    def autocast(self) -> torch.dtype | None:
        return {"amp": torch.float16, "amp_bf16": torch.bfloat16}.get(self.precision)

    def made(self) -> torch.Tensor:
        image = torch.randn(self.batch, 3, self.side, self.side, dtype=self.dtype)
        return image.to(memory_format=torch.channels_last) if self.last else image


def count_missing(images: Iterable[Image], counts: Path) -> None:
    """Those whose files are not there. Without timm, nothing: what was counted before is scored."""
    missing = defaultdict(list)
    for image in sorted(set(images)):
        if not image.file(counts).exists():
            missing[image.model, image.side, image.precision].append(image)
    if not missing:
        return
    if find_spec("timm") is None:
        print(f"{len(missing)} vision models are not counted: that needs timm", file=sys.stderr)
        return
    for _ in worked(partial(count, counts=counts), list(missing.values()), "vision models counted"):
        pass


def count(images: Sequence[Image], counts: Path) -> None:
    """Of one model, one side and one precision."""
    gc.disable()  # collected at the end, and what is left then, modules and caches, is not looked through again
    with cuda_choices(), torch.random.fork_rng(), fake_tensors():
        try:
            for image, program in zip(images, programs(images), strict=True):
                keep(image.file(counts), program)
        except GobrrrError as error:
            print(f"{images[0].model}: {error}", file=sys.stderr, flush=True)
            for image in images:
                keep(image.file(counts), None)
    gc.collect()
    gc.freeze()


def programs(images: Sequence[Image]) -> Iterator[Program]:
    """Those with channels last come last, for the model is then laid out anew.

    Models keep what they make once, as tables of positions: the first count then has more ops than the others, and is
    repeated. One that has none to compare with is repeated anyway.
    """
    model = user_code(partial(built, images[0]), "the model")
    found = [counted(model, image) for image in images if not image.last] or [counted(model, images[0])]
    if len(found) < 2 or len(found[0].ops) != len(found[1].ops):
        found[:1] = [counted(model, images[0])]
    yield from found
    yield from (counted(model, image) for image in images[len(found) :])


def counted(model: torch.nn.Module, image: Image) -> Program:
    laid = model.to(memory_format=torch.channels_last) if image.last else model
    step = inference(laid.to(image.dtype), image.made(), image.autocast)
    return counted_program(lambda: user_code(step, "its step"))


def built(image: Image) -> torch.nn.Module:
    """With norms in half precision, as the tables' own times tell: with group norms in fp32 a ResNet-50 moves twice the
    bytes that its measured time has room for. A model of one size is built for the image's.
    """
    import timm

    timm.layers.set_fast_norm(True)
    fixed = timm.get_pretrained_cfg(image.model).fixed_input_size
    with mock.patch.multiple(torch.nn.init, **dict.fromkeys(INITIALISERS, lambda tensor, *_, **__: tensor)):
        model: torch.nn.Module = timm.create_model(image.model, **({"img_size": image.side} if fixed else {}))
    return model


def program(image: Image, counts: Path) -> Program | None:
    path = image.file(counts)
    return held(path) if path.exists() else None
