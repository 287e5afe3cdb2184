"""The batch test: what a larger batch does to the step time of a small model, and of a large matrix with few rows."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import log2

from gobrrr import units
from gobrrr.dtypes import ITEM_BYTES, dtype_name
from gobrrr.lab.claim import Claim, judged, near, share
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import Site
from gobrrr.machine import Ceilings
from gobrrr.workload import Step

FLAT = 1.1
"""Growth of the step time per doubling up to which the article calls a step flat."""

SMALL, LARGE = "small model", "[B,D]x[D,D]"


@dataclass(frozen=True, slots=True)
class Batch:
    model: str
    batch: int
    seconds: float
    intensity: float
    regime: str
    limiter: str | None


@dataclass(frozen=True, slots=True)
class Growth:
    """From one batch to the next: how much longer a step takes for each doubling."""

    model: str
    regime: str
    """At the smaller batch."""
    per_doubling: float


@experiment("what does a larger batch tell?", "c13", "c21")
def batch(site: Site) -> Found:
    import torch

    ceilings = site.ceilings("matmul", "vector.fp32", "dram", "cache", "dispatch", "shortest_kernel")
    sizes = site.sizes
    with torch.no_grad():
        points = [_point(site, SMALL, rows, sizes.small_width, sizes.small_depth) for rows in sizes.small_batches]
        points += [_point(site, LARGE, rows, sizes.large_width, sizes.large_depth) for rows in sizes.large_batches]
    return Found(points, judge(points, ridge_batch(sizes.large_width, sizes.half, ceilings)), tuple(_drawings()))


def _point(site: Site, model: str, rows: int, width: int, depth: int) -> Batch:
    seen = site.examined(_layers(site, rows, width, depth), f"{model}, batch {rows}")
    return Batch(model, rows, seen.seconds, seen.flops / seen.bytes, seen.regime, seen.limiter)


def _layers(site: Site, rows: int, width: int, depth: int) -> Step:
    """Square layers with nothing between them; scaled so that numbers stay of ordinary size."""
    import torch

    options = {"device": site.device, "dtype": getattr(torch, site.sizes.half)}
    weights = [torch.randn(width, width, **options) / width**0.5 for _ in range(depth)]
    x = torch.randn(rows, width, **options)

    def step() -> torch.Tensor:
        y = x
        for weight in weights:
            y = y @ weight
        return y

    return step


def ridge_batch(width: int, half: str, ceilings: Ceilings) -> float | None:
    """Where 2·B·D² FLOPs at P take as long as D² + 2·B·D elements at W: B = r·D / (D − 2r), r = item·P / 2W."""
    dtype = dtype_name(f"torch.{half}") or half
    peak, memory = ceilings.matmul_flops_per_s.get(dtype), ceilings.dram_bytes_per_s
    if not peak or not memory:
        return None
    ridge = ITEM_BYTES[dtype] * peak / (2 * memory)
    return ridge * width / (width - 2 * ridge) if width > 2 * ridge else None


def growths(points: Sequence[Batch]) -> list[Growth]:
    return [
        Growth(one.model, one.regime, (two.seconds / one.seconds) ** (1 / log2(two.batch / one.batch)))
        for one, two in pairwise(points)
        if one.model == two.model
    ]


def judge(points: Sequence[Batch], ridge: float | None) -> tuple[Claim, ...]:
    return (_flat(points), _few_rows([point for point in points if point.model == LARGE], ridge))


def _flat(points: Sequence[Batch]) -> Claim:
    flat = [growth for growth in growths(points) if growth.per_doubling <= FLAT]
    small = [growth for growth in flat if growth.model == SMALL]
    large = [growth for growth in flat if growth.model == LARGE]
    weights = "no step of the large matrix is flat here"
    if large:
        bound = ", ".join(dict.fromkeys(growth.regime for growth in large))
        weights = f"the large matrix's are bound by {bound}, for its weights are read whatever the batch"
    return judged(
        "c13",
        f"flat steps: {len(small)} of the small model, {len(large)} of the large matrix",
        [
            share("of the small model's flat steps, overhead-bound", [one.regime == "overhead" for one in small]),
            share("of the large matrix's flat steps, not overhead-bound", [one.regime != "overhead" for one in large]),
        ],
        f"flat is at most {units.times(FLAT)} per doubling; {weights}",
    )


def _few_rows(points: Sequence[Batch], ridge: float | None) -> Claim:
    turn = turning_batch(points)
    return judged(
        "c21",
        f"compute-bound from a batch of about {units.count(turn)}",
        [
            share("the smallest batch, bandwidth-bound", [points[0].regime == "bandwidth"]),
            share("the largest batch, compute-bound", [points[-1].regime == "compute"]),
            near("batch where it turns, against that of the ridge", turn, ridge, 3),
        ],
        f"one row does {units.per_byte(points[0].intensity)}, {points[-1].batch} rows "
        f"{units.per_byte(points[-1].intensity)}; the machine's rates put the turn at a batch of {units.count(ridge)}",
    )


def turning_batch(points: Sequence[Batch]) -> float | None:
    """The middle of the axis between the last batch that is not compute-bound and the first of those that are."""
    for one, two in pairwise(points):
        if one.regime != "compute" and two.regime == "compute":
            return float((one.batch * two.batch) ** 0.5)
    return None


def _drawings() -> Iterator[Drawing]:
    for model in (SMALL, LARGE):
        yield Drawing(
            "bars",
            f"{model}: time of a step",
            Column("batch", "batch", ""),
            Column("seconds", "time", "s"),
            (Column("intensity", "intensity", "FLOP/B"), Column("limiter", "limiter"), Column("regime", "regime")),
            only={"model": model},
        )
