"""What another precision can gain, from an Exam; and how products of fp32 are computed."""

from gobrrr import units
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit
from gobrrr.treat.treatment import Forecast, Unfit
from gobrrr.work.op import Op, OpClass

LIKELY = 0.7
"""Of the gain in rate, what products of usual sizes see: smaller ones do not fill the faster units."""


def faster_products(chart: Chart, mode: str, *, moved: float = 0.0) -> Forecast:
    """Products as much faster as this device multiplies in that mode, and so much less time for all else."""
    gain = _gain(chart, mode)
    products_s = sum(one.seconds for one in chart.kernels(_multiplies_fp32))
    others_s = sum(one.seconds for one in chart.case.kernels) - products_s
    most_s = gain * products_s + moved * others_s
    return chart.forecast(device_s=LIKELY * most_s, most_device_s=most_s)


def _gain(chart: Chart, mode: str) -> float:
    """Of a product's time, by the measured rates: a device may support a type and compute it by way of another."""
    ceilings = chart.exam.ceilings
    usual, other = (ceilings.matmul_flops_per_s.get(one) for one in ("fp32", mode))
    if not usual or not other:
        why = ceilings.unmeasured.get(f"matmul.{mode}")
        raise Unfit(f"this device was not measured to multiply in {mode}{f': {why}' if why else ''}")
    if other <= usual:
        raise Unfit(
            f"this device has no units for {mode}: it multiplies at {units.flops_per_s(other)} in it, "
            f"at {units.flops_per_s(usual)} in fp32"
        )
    if not any(map(_multiplies_fp32, chart.ops)):
        raise Unfit("it multiplies nothing in fp32")
    return 1 - usual / other


def _multiplies_fp32(op: Op) -> bool:
    return op.cls is OpClass.CONTRACTION and op.work is not None and "fp32" in op.work.matrix


def fp32_products(older: str, newer: str) -> Edit:
    """By the older switch; where somebody used the newer setting it can no longer be read, and that is the one."""
    import torch
    from torch.backends.cuda import matmul

    try:
        torch.get_float32_matmul_precision()
    except RuntimeError:
        return Edit(lambda: matmul.fp32_precision, lambda new: setattr(matmul, "fp32_precision", new), newer)
    return Edit(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, older)
