"""TF32: products of fp32 on matrix units, with ten bits of mantissa."""

from collections.abc import Iterator
from functools import partial

from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, held_by_all
from gobrrr.treat.precision import faster_products, fp32_products
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Numerics, Stage, Unfit, treatment


@treatment(
    "tf32",
    "TF32 products",
    stage=Stage.PRECISION,
    numerics=Numerics.LOWER,
    allow="tf32",
    by_hand="""
    import torch

    torch.set_float32_matmul_precision("high")
    """,
)
class TF32:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("only a CUDA device multiplies so")
        return ("torch",)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        return faster_products(chart, "tf32")

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        del subject, sites
        yield held_by_all("fp32 products", partial(fp32_products, "high", "tf32"))
