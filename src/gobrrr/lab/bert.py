"""BERT's classes of ops: nearly all FLOPs are contractions, and much of the time is not.

The encoder layer of "Data Movement Is All You Need", forward and backward, with attention as it was then written:
scores, softmax and dropout as ops of their own.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr import units
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.diagnose.rows import ClassRow
from gobrrr.examination import examine
from gobrrr.lab.claim import Check, Claim, judged, near
from gobrrr.lab.experiment import Found, experiment
from gobrrr.lab.result import Column, Drawing
from gobrrr.lab.site import Site
from gobrrr.workload import Workload

if TYPE_CHECKING:
    from torch import nn

CLASSES = ("contraction", "normalization", "elementwise")
PAPER_FLOPS = dict(zip(CLASSES, (0.9980, 0.0017, 0.0003), strict=True))
PAPER_TIME = dict(zip(CLASSES, (0.610, 0.255, 0.135), strict=True))
SLOWER = {"normalization": 250, "elementwise": 700}

LAYER = "layer"


@dataclass(frozen=True, slots=True)
class ClassPoint:
    model: str
    cls: str
    flop_share: float
    paper_flop_share: float | None
    time_share: float
    """Of busy time, as in the paper."""
    paper_time_share: float | None
    seconds: float
    flops_per_s: float | None


@experiment("where do BERT's FLOPs go, and where its time?", "c02", "c03", "c04")
def bert(site: Site) -> Found:
    points = [*_table(site, LAYER, 1), *_table(site, f"{site.sizes.bert_layers} layers", site.sizes.bert_layers)]
    return Found(points, judge(points), tuple(_drawings(points)))


def _table(site: Site, name: str, layers: int) -> list[ClassPoint]:
    site.tell(f"BERT-large, {name}")
    diagnosis = diagnose(examine(lambda: training(site, layers), name, effort=site.sizes.effort))
    return class_points(name, diagnosis.classes)


def class_points(model: str, rows: Mapping[str, ClassRow]) -> list[ClassPoint]:
    flops = sum(row.flops or 0.0 for row in rows.values())
    return [
        ClassPoint(
            model=model,
            cls=cls,
            flop_share=(row.flops or 0.0) / flops,
            paper_flop_share=PAPER_FLOPS.get(cls),
            time_share=row.share,
            paper_time_share=PAPER_TIME.get(cls),
            seconds=row.seconds,
            flops_per_s=row.flops / row.seconds if row.flops is not None and row.seconds else None,
        )
        for cls, row in rows.items()
    ]


def training(site: Site, layers: int) -> Workload:
    """Forward and backward, also to the input, as inside a model; no optimizer, as in the paper."""
    import torch
    from torch import nn

    sizes = site.sizes
    dtype = getattr(torch, sizes.half)
    stack = nn.Sequential(*(encoder_layer(sizes.bert_hidden) for _ in range(layers))).to(site.device, dtype)
    shape = (sizes.bert_batch, sizes.bert_length, sizes.bert_hidden)
    x = torch.randn(shape, device=site.device, dtype=dtype, requires_grad=True)
    return Workload(stack, x, loss=lambda out: out.sum(), reset=partial(setattr, x, "grad", None))


def encoder_layer(hidden: int) -> "nn.Module":
    """Post-norm, heads of 64, four times as wide within."""
    import torch
    from torch import nn

    heads = max(1, hidden // 64)

    class Layer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(hidden, 3 * hidden), nn.Linear(hidden, hidden)
            self.wide, self.narrow = nn.Linear(hidden, 4 * hidden), nn.Linear(4 * hidden, hidden)
            self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(2))
            self.dropout = nn.Dropout(0.1)

        def forward(self, x: Any) -> Any:
            q, k, v = self.qkv(x).unflatten(-1, (3, heads, -1)).permute(2, 0, 3, 1, 4)
            scores = q @ k.transpose(-1, -2) * (hidden // heads) ** -0.5
            mixed = self.dropout(torch.softmax(scores, -1)) @ v
            x = self.norms[0](x + self.dropout(self.out(mixed.transpose(1, 2).flatten(2))))
            inner = self.dropout(torch.nn.functional.gelu(self.wide(x)))
            return self.norms[1](x + self.dropout(self.narrow(inner)))

    return Layer()


def judge(points: Sequence[ClassPoint]) -> tuple[Claim, ...]:
    layer = {point.cls: point for point in points if point.model == LAYER}
    return (_flops(points), _time(layer), _rates(layer))


def _flops(points: Sequence[ClassPoint]) -> Claim:
    counted = [point for point in points if point.paper_flop_share is not None]
    off = [abs(point.flop_share - (point.paper_flop_share or 0)) for point in counted]
    said = ", ".join(f"{one.cls} {units.percent(one.flop_share, 2)}" for one in counted if one.model == LAYER)
    return judged(
        "c02",
        said,
        [Check("largest difference to the paper's shares, layer and model", max(off), high=0.002)],
        f"counted by formula, independent of the machine; the largest difference is {units.percent(max(off), 2)}",
    )


def _time(layer: Mapping[str, ClassPoint]) -> Claim:
    others = 1 - sum(layer[cls].time_share for cls in CLASSES)
    off = {cls: layer[cls].time_share - said for cls, said in PAPER_TIME.items()}
    furthest = max(off, key=lambda cls: abs(off[cls]))
    return judged(
        "c03",
        ", ".join(f"{cls} {units.percent(layer[cls].time_share, 0)}" for cls in CLASSES),
        [
            Check(f"{cls}, within 10 points of {units.percent(said)}", layer[cls].time_share, said - 0.1, said + 0.1)
            for cls, said in PAPER_TIME.items()
        ],
        f"of busy time, with {units.percent(others, 0)} in other classes; furthest from the paper's V100 is "
        f"{furthest}, by {100 * off[furthest]:+.0f} points",
    )


def _rates(layer: Mapping[str, ClassPoint]) -> Claim:
    product = layer["contraction"].flops_per_s
    slower = {cls: _ratio(product, layer[cls].flops_per_s) for cls in SLOWER}
    said = ", ".join(f"{cls} {units.times(ratio)}" for cls, ratio in slower.items())
    return judged(
        "c04",
        f"{said} fewer FLOP/s",
        [near(f"{cls}, against {SLOWER[cls]}", ratio, SLOWER[cls], 2) for cls, ratio in slower.items()],
        f"contractions do {units.flops_per_s(product)}, normalization "
        f"{units.flops_per_s(layer['normalization'].flops_per_s)}, elementwise "
        f"{units.flops_per_s(layer['elementwise'].flops_per_s)}: memory sets the latter two",
    )


def _ratio(one: float | None, other: float | None) -> float | None:
    return one / other if one and other else None


def _drawings(points: Sequence[ClassPoint]) -> Iterator[Drawing]:
    for model in dict.fromkeys(point.model for point in points):
        yield Drawing(
            "bars",
            f"BERT-large, {model}, forward and backward",
            Column("cls", "class"),
            Column("time_share", "time", "%"),
            (
                Column("paper_time_share", "paper", "%"),
                Column("flop_share", "FLOPs", "%"),
                Column("paper_flop_share", "paper", "%"),
                Column("flops_per_s", "rate", "FLOP/s"),
            ),
            only={"model": model},
        )
