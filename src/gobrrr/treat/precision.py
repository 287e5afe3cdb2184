"""What another precision can gain, from an Exam."""

from gobrrr.treat.chart import Chart
from gobrrr.treat.treatment import Forecast
from gobrrr.work.op import Op, OpClass

LIKELY = 0.7
"""Of the gain in rate, what products of usual sizes see: smaller ones do not fill the faster units."""


def faster_products(chart: Chart, mode: str, *, moved: float = 0.0) -> Forecast:
    """Products as much faster as this device multiplies in that mode, and so much less time for all else."""
    rates = chart.exam.ceilings.matmul_flops_per_s
    gain = 1 - rates["fp32"] / rates[mode] if rates.get("fp32") and rates.get(mode) else 0.0
    products_s = sum(one.seconds for one in chart.kernels(_multiplies_fp32))
    others_s = sum(one.seconds for one in chart.case.kernels) - products_s
    most_s = max(0.0, gain) * products_s + moved * others_s
    return chart.forecast(device_s=LIKELY * most_s, most_device_s=most_s)


def _multiplies_fp32(op: Op) -> bool:
    return op.cls is OpClass.CONTRACTION and op.work is not None and "fp32" in op.work.matrix
