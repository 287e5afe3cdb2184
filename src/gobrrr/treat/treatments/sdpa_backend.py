"""The kernel of attention that is the fastest at the step's own shapes, before those that torch would try first."""

from collections.abc import Iterator

from gobrrr.treat.backends import FUSED, SPELLED_OUT, attention_seconds, attention_shapes, backend, preferring
from gobrrr.treat.by_hand import spread
from gobrrr.treat.chart import Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.work.op import Op

WORTH = 0.95
"""Of the time that torch's own choice takes: what is nearer to it is as good."""


@treatment(
    "sdpa-backend",
    "the fastest of attention's kernels",
    stage=Stage.STRUCTURE,
    by_hand="""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    kernels = $kernels
    preferred = sdpa_kernel(kernels, set_priority=True)  # the first first
    $preferring
    """,
    fills=lambda subject, sites: _words(subject, sites[0]),
)
class SdpaBackend:
    """The site is the kernel's name. A backward pass takes the kernel of its forward pass."""

    def sites(self, chart: Chart) -> tuple[str, ...]:
        if not chart.is_cuda:
            raise Unfit("there is no choice but on a CUDA device")
        if not any(_attends(op) for op in chart.ops):
            raise Unfit("it calls no scaled_dot_product_attention")
        took_s = _measured(chart)
        best = min(took_s, key=took_s.__getitem__)
        if best is None or took_s[best] > WORTH * took_s[None]:
            raise Unfit("torch's own choice of a kernel is the fastest at its shapes")
        return (best,)

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """As much faster as it was at these shapes."""
        took_s = _measured(chart)
        kernels = chart.kernels(_attends)
        seconds = sum(one.seconds for one in kernels)
        above_s = seconds - sum(one.floor.seconds for one in kernels if one.floor is not None)
        likely_s = seconds * (1 - took_s[sites[0]] / took_s[None])
        return chart.forecast(device_s=likely_s, most_device_s=max(above_s, likely_s))

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        (name,) = sites
        for model in subject.models.values():
            yield attribute(model, "forward", preferring(model.forward, name, *FUSED, SPELLED_OUT))
        if not subject.models:
            yield attribute(subject, "step", preferring(subject.step, name, *FUSED, SPELLED_OUT))


def _words(subject: Subject, name: str) -> dict[str, str]:
    kernels = [f"SDPBackend.{backend(one).name}" for one in dict.fromkeys((name, *FUSED, SPELLED_OUT))]
    places = [f"{root}.forward" for root in subject.models] or ["step"]
    return {
        "kernels": spread("[]", kernels),
        "preferring": "\n".join(f"{place} = preferred({place})" for place in places),
    }


def _measured(chart: Chart) -> dict[str | None, float]:
    shapes = attention_shapes(chart.subject)
    if not shapes:
        raise Unfit("its calls of attention are inside of another function's")
    return dict(attention_seconds(shapes.items(), chart.subject.device))


def _attends(op: Op) -> bool:
    return "scaled_dot_product" in op.name
