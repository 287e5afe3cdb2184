"""Each accelerator predicted with constants that were fitted without it.

    python -m benchmarks.predict_left_out TABLE_DIR --json > benchmarks/results/predict_left_out.json

The constants of one family of kernels are moved off their shipped values, each by a quarter, and fitted anew to the
tables of all other accelerators: one after the other is made a little larger or smaller as long as the mean absolute
log error, the same for each accelerator, falls. What is left out is then scored beside the shipped constants.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from math import log
from pathlib import Path
from statistics import fmean
from types import ModuleType
from typing import Any, ClassVar
from unittest import mock

from benchmarks import predict_tables
from benchmarks.predict import Score, scored
from benchmarks.predict_tables import FORMATS, Cells, Row, columns_of

from gobrrr import schema
from gobrrr.predict import attention, conv, product, stream
from gobrrr.predict.spread import FITTED as FITTED_TO
from gobrrr.predict.spread import Family

MOVED = 1.25
"""How far constants start from where they are shipped, up and down in turn."""
STEPS = (1.25, 1.12, 1.05)
ROWS = 400
"""Of a table and accelerator that a fit looks at, evenly spread; all of what is left out is scored."""


@dataclass(frozen=True, slots=True)
class Fitted:
    """A family of kernels: the tables that tell of it, and its constants by where they are kept."""

    tables: tuple[str, ...]
    """Their formats."""
    families: tuple[Family, ...]
    constants: tuple[tuple[Any, str], ...]


def named(module: ModuleType, names: str) -> tuple[tuple[Any, str], ...]:
    return tuple((module, name) for name in names.split())


FITTED = (
    Fitted(
        ("gemm",),
        (Family.PRODUCT,),
        named(
            product,
            "_RATE _RATE_FED _TILE_LOADS _TILE_CYCLES _TILE_CYCLES_PER_ELEMENT _FILL_CYCLES _STREAMED _SHARPNESS",
        ),
    ),
    Fitted(
        ("attention",),
        (Family.ATTENTION,),
        named(
            attention,
            "_SCORE_CYCLES _SCORE_CYCLES_ASYNCHRONOUS _TILE_CYCLES _LONGEST _PREFILL_SHARPNESS _START_S _START_CYCLES "
            "_DECODE_ROWS _DECODE_TILE_CYCLES _DECODE_START_CYCLES _COMBINE_CYCLES _DECODE_STREAMED _DECODE_SHARPNESS "
            "_BYTES_PER_CYCLE",
        ),
    ),
    Fitted(
        ("vector_ops", "llm_ops"),
        (Family.STREAM, Family.SHUFFLED, Family.HOST),
        (
            *named(stream, "_STREAMED _FILL_CYCLES _ROW_CYCLES _SHARPNESS"),
            (stream.Stream.ROWWISE, "_value_"),
            (stream.Stream.SINGLY, "_value_"),
            (stream.Stream.GATHER, "_value_"),
        ),
    ),
    Fitted(
        ("conv_ops",),
        (Family.CONVOLUTION,),
        named(conv, "_IMPLICIT_SIMT _WINOGRAD _TRANSFORMED _WINOGRAD_S")
        + named(product, "_RATE_SIMT _TILE_LOADS_SIMT"),
    ),
)


@dataclass(frozen=True, slots=True)
class LeftOut:
    table: str
    accelerator: str
    n: int
    mape: float
    shipped_mape: float
    ratio: float
    """Of the two."""
    coverage: float
    """Of the 80 % interval."""


@dataclass(frozen=True, slots=True)
class AllLeftOut:
    SCHEMA: ClassVar[str] = "predict_left_out"
    VERSION: ClassVar[int] = 1

    tables: tuple[LeftOut, ...]


def predicted(fitted: Fitted, tables: Path) -> list[Row]:
    product._candidates.cache_clear()  # it holds rates made of constants that have changed
    formats = [FORMATS[name] for name in fitted.tables]
    read = (one.rows(path, Counter()) for one in formats for path in paths(tables, one.columns))
    return [row for rows in read for row in rows if row.family in fitted.families]


@cache
def paths(tables: Path, columns: tuple[str, ...]) -> list[Path]:
    """Of one format."""
    return [path for path in sorted(tables.rglob("*.csv")) if columns_of(path) >= set(columns)]


@contextmanager
def at(constants: Sequence[tuple[Any, str]], values: Sequence[float]) -> Iterator[None]:
    with ExitStack() as stack:
        for (owner, name), value in zip(constants, values, strict=True):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield


@contextmanager
def unseen(accelerator: str) -> Iterator[None]:
    """Its intervals are those of one that no constant was fitted to."""
    with mock.patch.dict(FITTED_TO, {family: names - {accelerator} for family, names in FITTED_TO.items()}):
        yield


@contextmanager
def thinned() -> Iterator[None]:
    """Every so-many-th line of a table, read once."""
    original = predict_tables.read

    @cache
    def some(path: Path) -> list[Cells]:
        cells = list(original(path))
        accelerators = {row.get("system") or row.get("gpu") or row.get("Device") for row in cells}
        return cells[:: max(1, len(cells) // (ROWS * len(accelerators)))]

    with mock.patch.object(predict_tables, "read", some):
        yield


def error(rows: Sequence[Row], without: str) -> float:
    by_accelerator = defaultdict(list)
    for row in rows:
        if row.accelerator != without:
            by_accelerator[row.accelerator].append(abs(log(row.predicted_s / row.measured_s)))
    return fmean(fmean(errors) for errors in by_accelerator.values())


def fit(fitted: Fitted, tables: Path, without: str) -> list[float]:
    values = [getattr(owner, name) * MOVED ** (-1) ** number for number, (owner, name) in enumerate(fitted.constants)]

    def loss(tried: Sequence[float]) -> float:
        with at(fitted.constants, tried):
            return error(predicted(fitted, tables), without)

    best = loss(values)
    for factor in (step for step in STEPS for _ in range(2)):
        for number in range(len(values)):
            for tried in (values[number] * factor, values[number] / factor):
                candidate = [*values[:number], tried, *values[number + 1 :]]
                if (found := loss(candidate)) < best:
                    values, best = candidate, found
    return values


def left_out(fitted: Fitted, tables: Path) -> Iterator[LeftOut]:
    shipped = {(one.table, one.accelerator): one for one in scored(predicted(fitted, tables))}
    accelerators = sorted({name for _, name in shipped if name != "macro"})
    for accelerator in accelerators if len(accelerators) > 1 else ():
        with thinned():
            values = fit(fitted, tables, accelerator)
        with at(fitted.constants, values), unseen(accelerator):
            scores = [one for one in scored(predicted(fitted, tables)) if one.accelerator == accelerator]
        yield from (_beside(one, shipped[one.table, accelerator]) for one in scores)


def _beside(one: Score, shipped: Score) -> LeftOut:
    return LeftOut(one.table, one.accelerator, one.n, one.mape, shipped.mape, one.mape / shipped.mape, one.coverage)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, metavar="TABLE_DIR")
    parser.add_argument("--json", action="store_true", help="data on stdout, nothing else")
    given = parser.parse_args(arguments)
    found = [one for fitted in FITTED for one in left_out(fitted, given.tables)]
    if given.json:
        print(schema.dumps(AllLeftOut(tuple(found))))
        return
    for one in found:
        print(
            f"{one.table:24} {one.accelerator:24} n {one.n:5}  mape {one.mape:6.1%}  shipped {one.shipped_mape:6.1%}  "
            f"x{one.ratio:.2f}  covered {one.coverage:4.0%}"
        )


if __name__ == "__main__":
    main(sys.argv[1:])
