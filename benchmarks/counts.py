"""Counts of whole models, kept beside each other in a folder; delete it when a formula changes.

One that failed is kept as well, as None, so that it is not tried again.
"""

import gzip
import pickle
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from gobrrr.errors import GobrrrError
from gobrrr.work.count import count_elsewhere
from gobrrr.work.program import Program

COUNTS = Path.home() / ".cache" / "gobrrr" / "counts"


def file_of(counts: Path, name: str) -> Path:
    return counts / f"{name}.pkl.gz"


def keep(path: Path, program: Program | None) -> None:
    """Whole or not at all: a killed run leaves no half of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    unfinished.write_bytes(gzip.compress(pickle.dumps(program), 1))
    unfinished.replace(path)


def held(path: Path) -> Program | None:
    program: Program | None = pickle.loads(gzip.decompress(path.read_bytes()))  # noqa: S301 (our own file)
    return program


def counted(name: str, factory: Callable[[], Any], counts: Path, *, traced: bool = False) -> Program | None:
    """From the folder, or now. None for a model that cannot be built or counted."""
    path = file_of(counts, name)
    if not path.exists():
        keep(path, attempted(factory, traced=traced))
    return held(path)


def attempted(factory: Callable[[], Any], *, traced: bool) -> Program | None:
    try:
        return count_elsewhere(factory, traced=traced)
    except GobrrrError:
        return None


def inference(
    model: torch.nn.Module, inputs: torch.Tensor, autocast: torch.dtype | None = None
) -> Callable[[], object]:
    model.eval()

    def run() -> object:
        with torch.no_grad(), torch.autocast("cpu", autocast) if autocast else nullcontext():
            return model(inputs)

    return run
