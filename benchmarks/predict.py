"""Scores the predictor on tables of measured times, for every accelerator that the datasheets hold.

    python -m benchmarks.predict TABLE_DIR --json > benchmarks/results/predict.json

One set of constants for all: nothing here or in gobrrr.predict knows which table a row is from. Rows of one table and
accelerator make a line; `macro` is the mean over a table's accelerators.
"""

import argparse
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import ceil, exp, floor, log
from pathlib import Path
from statistics import fmean, median
from typing import ClassVar

from benchmarks.counts import COUNTS
from benchmarks.predict_models import VISION, Vision, count_images, model_formats, vision_models
from benchmarks.predict_tables import FORMATS, SWEPT, LeftOut, Row, columns_of, read

from gobrrr import schema
from gobrrr.predict.spread import spread


@dataclass(frozen=True, slots=True)
class Score:
    table: str
    accelerator: str
    n: int
    mape: float
    median: float
    p90: float
    bias: float
    """Geometric mean of predicted over measured."""
    within_20: float
    coverage: float
    """Of the 80 % interval."""
    spearman: float | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """Speed-ups of one table's rows over another's, the same models on the same accelerator."""

    change: str
    accelerator: str
    n: int
    spearman: float | None
    median_log_error: float
    of_constant: float
    """That error over the one of the best constant, the measured median."""
    slowed: int
    """Models that the change made slower."""
    recognised: float | None
    """The share of them that was predicted so."""
    false_alarms: float | None
    """The share of the others that was."""


@dataclass(frozen=True, slots=True)
class Knee:
    """Of a sweep over batch sizes: where the time of the smallest step meets that of the largest, taken per item.

    Below it the host limits, above it the device.
    """

    table: str
    accelerator: str
    measured_items: float
    predicted_items: float
    ratio: float


@dataclass(frozen=True, slots=True)
class LeftOutRows:
    """Rows that could not be scored."""

    table: str
    """Its file."""
    rows: int
    why: str


@dataclass(frozen=True, slots=True)
class Scores:
    SCHEMA: ClassVar[str] = "predict_score"
    VERSION: ClassVar[int] = 1

    tables: tuple[Score, ...]
    comparisons: tuple[Comparison, ...]
    knees: tuple[Knee, ...]
    left_out: tuple[LeftOutRows, ...]


def score(table: str, accelerator: str, rows: Sequence[Row]) -> Score:
    errors = sorted(abs(row.predicted_s / row.measured_s - 1) for row in rows)
    logs = [log(row.predicted_s / row.measured_s) for row in rows]
    return Score(
        table=table,
        accelerator=accelerator,
        n=len(rows),
        mape=fmean(errors),
        median=median(errors),
        p90=quantile(errors, 0.9),
        bias=exp(fmean(logs)),
        within_20=fmean(error <= 0.2 for error in errors),
        coverage=fmean(abs(ratio) <= _spread(row) for ratio, row in zip(logs, rows, strict=True)),
        spearman=spearman([row.predicted_s for row in rows], [row.measured_s for row in rows]),
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """Between neighbours in proportion."""
    place = share * (len(ordered) - 1)
    below, above = ordered[floor(place)], ordered[ceil(place)]
    return below + (place - floor(place)) * (above - below)


def _spread(row: Row) -> float:
    return spread(row.family, row.predicted_s, row.accelerator) if row.spread is None else row.spread


def spearman(ours: Sequence[float], theirs: Sequence[float]) -> float | None:
    """Correlation of ranks; none for fewer than three rows."""
    if len(ours) < 3:
        return None
    a, b = ranks(ours), ranks(theirs)
    mean = (len(ours) + 1) / 2
    spread = sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b)
    together = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return together / spread**0.5 if spread else None


def ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    found = [0.0] * len(values)
    start = 0
    while start < len(order):
        end = start
        while end < len(order) and values[order[end]] == values[order[start]]:
            end += 1
        for index in order[start:end]:
            found[index] = (start + 1 + end) / 2
        start = end
    return found


def macro(table: str, scores: Sequence[Score]) -> Score:
    known = [one.spearman for one in scores if one.spearman is not None]
    return Score(
        table,
        "macro",
        sum(one.n for one in scores),
        fmean(one.mape for one in scores),
        fmean(one.median for one in scores),
        fmean(one.p90 for one in scores),
        exp(fmean(log(one.bias) for one in scores)),
        fmean(one.within_20 for one in scores),
        fmean(one.coverage for one in scores),
        fmean(known) if known else None,
    )


def scored(rows: Iterable[Row]) -> Iterator[Score]:
    grouped: defaultdict[str, defaultdict[str, list[Row]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for table in row.tables:
            grouped[table][row.accelerator].append(row)
    for table, by_accelerator in grouped.items():
        scores = [score(table, accelerator, some) for accelerator, some in by_accelerator.items()]
        yield from scores
        yield macro(table, scores)


CHANGES = {"compile": ("vision nchw", "vision nchw-dynamo"), "channels_last": ("vision nchw", "vision nhwc")}


def compared(rows: Sequence[Row]) -> Iterator[Comparison]:
    """Each change on each accelerator that has both tables."""
    for change, (before, after) in CHANGES.items():
        first, second = (
            {(row.accelerator, row.workload): row for row in rows if table in row.tables} for table in (before, after)
        )
        both = defaultdict(list)
        for key in first.keys() & second.keys():
            both[key[0]].append((first[key], second[key]))
        for device, pairs in both.items():
            yield comparison(change, device, pairs)


def comparison(change: str, device: str, pairs: Sequence[tuple[Row, Row]]) -> Comparison:
    measured, predicted = (
        [log(seconds(a) / a.items / (seconds(b) / b.items)) for a, b in pairs]
        for seconds in (lambda row: row.measured_s, lambda row: row.predicted_s)
    )
    constant = median(measured)
    error = median(abs(ours - theirs) for ours, theirs in zip(predicted, measured, strict=True))
    slowed = [ours < 0 for ours, theirs in zip(predicted, measured, strict=True) if theirs < 0]
    others = [ours < 0 for ours, theirs in zip(predicted, measured, strict=True) if theirs >= 0]
    return Comparison(
        change,
        device,
        len(pairs),
        spearman(predicted, measured),
        error,
        error / (median(abs(one - constant) for one in measured) or 1.0),
        len(slowed),
        fmean(slowed) if slowed else None,
        fmean(others) if others else None,
    )


def knees(rows: Iterable[Row]) -> Iterator[Knee]:
    sweeps: defaultdict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        if row.workload == SWEPT:
            sweeps[row.tables[0], row.accelerator].append(row)
    for (table, device), swept in sweeps.items():
        if len({row.items for row in swept}) < 2:
            continue
        measured, predicted = (
            knee([(row.items, seconds(row)) for row in swept])
            for seconds in (lambda row: row.measured_s, lambda row: row.predicted_s)
        )
        yield Knee(table, device, measured, predicted, predicted / measured)


def knee(sweep: Iterable[tuple[int, float]]) -> float:
    (_, flat_s), *_, (items, longest_s) = sorted(sweep)
    return flat_s * items / longest_s


Missing = defaultdict[str, Counter[str]]
"""By table: why rows were left out, and how many."""


def rows_of(folder: Path, counts: Path, missing: Missing) -> Iterator[Row]:
    """Of all tables in a folder and below it. A table is told by its columns, whatever its name."""
    formats = {**FORMATS, **model_formats(folder, counts)}
    columns = {name: one.columns for name, one in formats.items()} | {"vision": VISION}
    known: defaultdict[str, list[Path]] = defaultdict(list)
    for path in sorted(folder.rglob("*.csv")):
        with whole_table(path, missing):
            known[recognised(path, columns)].append(path)
    for name, one in formats.items():
        for path in known[name]:
            yield from one.rows(path, missing[path.name])
    visions = []
    for path in known["vision"]:
        with whole_table(path, missing):
            visions.append(Vision.of(path))
    count_images(visions, counts)
    for table in visions:
        yield from vision_models(table, counts, missing[table.path.name])


@contextmanager
def whole_table(path: Path, missing: Missing) -> Iterator[None]:
    try:
        yield
    except LeftOut as why:
        missing[path.name][str(why)] += sum(1 for _ in read(path))


def recognised(path: Path, formats: Mapping[str, Sequence[str]]) -> str:
    found = columns_of(path)
    if not found:
        raise LeftOut("it has no rows")
    lacking = {name: [column for column in columns if column not in found] for name, columns in formats.items()}
    nearest = min(lacking, key=lambda name: len(lacking[name]) / len(formats[name]))
    if lacking[nearest]:
        raise LeftOut(f"it has the columns of no format; those of {nearest} would need {', '.join(lacking[nearest])}")
    return nearest


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("tables", type=Path, metavar="TABLE_DIR")
    parser.add_argument("--counts", type=Path, default=COUNTS, help="folder in which counted models are kept")
    parser.add_argument("--json", action="store_true", help="data on stdout, nothing else")
    given = parser.parse_args(arguments)
    if not given.tables.is_dir():
        parser.error(f"{given.tables} is no folder")
    missing: Missing = defaultdict(Counter)
    rows = list(rows_of(given.tables, given.counts, missing))
    left_out = (LeftOutRows(table, number, why) for table, whys in missing.items() for why, number in whys.items())
    scores = Scores(tuple(scored(rows)), tuple(compared(rows)), tuple(knees(rows)), tuple(left_out))
    if given.json:
        print(schema.dumps(scores))
        return
    for one in scores.tables:
        rank = "" if one.spearman is None else f"  spearman {one.spearman:.3f}"
        print(
            f"{one.table:24} {one.accelerator:24} n {one.n:5}  mape {one.mape:6.1%}  median {one.median:6.1%}  "
            f"p90 {one.p90:6.1%}  bias {one.bias:.3f}  within 20 % {one.within_20:4.0%}  "
            f"covered {one.coverage:4.0%}{rank}"
        )
    for other in (*scores.comparisons, *scores.knees):
        print(other)
    for one in scores.left_out:
        print(f"{one.table}: {one.rows} rows left out, {one.why}")


if __name__ == "__main__":
    main(sys.argv[1:])
