"""Linear layers of an odd number of outputs padded to a number that matrix units like, and their results cut back."""

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from gobrrr.diagnose.attribute import Attributed
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.fusing import compiled_here
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.work.lineage import is_generated
from gobrrr.work.op import OpClass

if TYPE_CHECKING:
    import torch

ALIGNED = 8
"""Elements at multiples of which rows have to begin."""

TO = 64

LARGE = 1 << 20
"""Elements of a weight from which on a copy of it each step is little beside what it multiplies."""

LIKELY = 0.9
"""Of what is at stake: the copies take the rest."""


@treatment(
    "padded-products",
    "odd output sizes padded",
    stage=Stage.STRUCTURE,
    by_hand="""
    from functools import partial

    from torch.nn.functional import linear, pad


    def padded(layer, x):
        extra = -layer.out_features % 64
        weight = pad(layer.weight, (0, 0, 0, extra))
        bias = None if layer.bias is None else pad(layer.bias, (0, extra))
        return linear(x, weight, bias)[..., : layer.out_features]


    for name in $names:  # or choose sizes that 64 divides
        layer = $model.get_submodule(name)
        layer.forward = partial(padded, layer)
    """,
)
class PaddedProducts:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("a CPU does not mind odd sizes")
        found = tuple(name for name, module in chart.subject.modules() if is_odd(module))
        if not found:
            raise Unfit("it has no large linear layer of an odd size")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """Of products; and where a compiler has padded these by itself, of all else that goes over their rows."""
        most_s = chart.device_s_of("B302")
        sizes = {int(chart.subject.module(site).out_features) for site in sites}  # type: ignore[arg-type]
        around = [_gained_s(one, sizes) for one in chart.case.kernels] if compiled_here(chart.subject) else []
        likely_s, more_s = (sum(column) for column in zip(*around, strict=True)) if around else (0.0, 0.0)
        return chart.forecast(device_s=LIKELY * most_s + likely_s, most_device_s=most_s + more_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            module = subject.module(site)
            yield attribute(module, "forward", partial(padded_forward, module))


def _gained_s(one: Attributed, sizes: set[int]) -> tuple[float, float]:
    """In a generated kernel over rows of an odd size, what it takes above its floor; all of one that does nothing of
    the program's and copies them for the compiler's own padding. As a rule, and at the most.
    """
    if one.op is None or one.floor is None or one.cls is OpClass.CONTRACTION or not is_generated(one.op):
        return 0.0, 0.0
    read, written = ([ref.shape for ref in refs if ref.numel >= LARGE] for refs in (one.op.inputs, one.op.outputs))
    if not any(shape[-1] in sizes for shape in (*read, *written)):
        return 0.0, 0.0
    padded = {size + -size % ALIGNED for size in sizes}
    if not one.kernel.fused_from and any(padded.intersection(shape) for shape in written):
        return one.seconds, one.seconds
    return max(0.0, one.seconds - one.floor.seconds / REACHED), max(0.0, one.seconds - one.floor.seconds)


def is_odd(module: object) -> bool:
    import torch

    return type(module) is torch.nn.Linear and module.out_features % ALIGNED != 0 and module.weight.numel() >= LARGE


def padded_forward(module: Any, input: "torch.Tensor") -> "torch.Tensor":  # noqa: A002 (torch's name)
    """The parameter stays what it is, for optimizers, ties and checkpoints; rows of zeros are added as it is used."""
    from torch.nn.functional import linear, pad

    extra = -module.out_features % TO
    bias = None if module.bias is None else pad(module.bias, (0, extra))
    return linear(input, pad(module.weight, (0, 0, 0, extra)), bias)[..., : module.out_features]
