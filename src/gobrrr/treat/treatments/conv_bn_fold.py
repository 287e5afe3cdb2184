"""Batch normalization folded into the convolution before it, where nothing is trained."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from gobrrr.timing.state import preserved
from gobrrr.treat.by_hand import listed
from gobrrr.treat.chart import REACHED, Chart
from gobrrr.treat.edit import Edit, attribute
from gobrrr.treat.in_place import InPlace, has_own_weight
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment

if TYPE_CHECKING:
    import torch


@treatment(
    "conv-bn-fold",
    "batch normalization folded into convolutions",
    stage=Stage.STRUCTURE,
    inference=True,
    by_hand="""
    import torch
    from torch.nn.utils.fusion import fuse_conv_bn_eval

    for names in $names:
        conv, norm = map($model.get_submodule, names)
        $model.set_submodule(names[0], fuse_conv_bn_eval(conv, norm))
        $model.set_submodule(names[1], torch.nn.Identity())
    """,
    fills=lambda _, sites: {"names": listed(_in_pairs([site.partition(":")[2] for site in sites]))},
)
class ConvBnFold:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        """Pairs of names, one after the other."""
        if chart.trains:
            raise Unfit("statistics change while it trains")
        found = tuple(name for pair in folding_pairs(chart.subject) for name in pair)
        if not found:
            raise Unfit("no batch normalization reads the result of a convolution")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        del sites
        took_s = sum(one.seconds for one in chart.kernels(lambda op: "batch_norm" in op.name))
        return chart.forecast(device_s=REACHED * took_s, host_s=_calls(chart) * chart.case.op_s, most_device_s=took_s)

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        """Both modules stay, with their parameters and names, and only compute otherwise."""
        from torch.nn.utils.fusion import fuse_conv_bn_eval

        for names in _in_pairs(sites):
            conv, norm = map(subject.module, names)
            if _hooked(conv) or _hooked(norm):
                raise Unfit(f"a hook stands between {names[0]} and {names[1]}")
            fused = fuse_conv_bn_eval(conv, norm)  # type: ignore[type-var, arg-type]
            yield attribute(conv, "forward", InPlace(fused.requires_grad_(requires_grad=False)))
            yield attribute(norm, "forward", _as_it_is)


def _hooked(module: Any) -> bool:
    """Somebody sees, and may change, what goes from the one to the other."""
    from torch.nn import Conv2d

    return bool(module._forward_hooks if isinstance(module, Conv2d) else module._forward_pre_hooks)  # noqa: SLF001


def _in_pairs(names: Sequence[str]) -> Iterable[tuple[str, str]]:
    return zip(names[::2], names[1::2], strict=True)


def _calls(chart: Chart) -> int:
    return sum("batch_norm" in op.name for op in chart.ops)


def _as_it_is(input: "torch.Tensor") -> "torch.Tensor":  # noqa: A002 (torch's name)
    return input


def folding_pairs(subject: Subject) -> list[tuple[str, str]]:
    """A convolution whose result a batch normalization of the same path reads, each called once: seen in one step."""
    from torch.nn import BatchNorm2d, Conv2d

    made: dict[int, str] = {}
    held: list[Any] = []
    pairs: list[tuple[str, str]] = []

    def convolved(name: str) -> Any:
        def hook(_module: Any, _args: Any, output: Any) -> None:
            held.append(output)  # so that no other tensor takes its identity
            made[id(output)] = name

        return hook

    def normalizing(name: str) -> Any:
        def hook(_module: Any, args: Any) -> None:
            if args and id(args[0]) in made:
                pairs.append((made.pop(id(args[0])), name))

        return hook

    hooks = []
    for name, module in subject.modules():
        if isinstance(module, Conv2d) and not module.training and has_own_weight(module) and not _hooked(module):
            hooks.append(module.register_forward_hook(convolved(name)))
        elif (
            isinstance(module, BatchNorm2d) and not (module.training or _hooked(module)) and module.track_running_stats
        ):
            hooks.append(module.register_forward_pre_hook(normalizing(name)))
    try:
        with preserved(subject.origin):
            subject.run()
            return list(pairs)  # the hooks' own list is put back too
    finally:
        for one in hooks:
            one.remove()
