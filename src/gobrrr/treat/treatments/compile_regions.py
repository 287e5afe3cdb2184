"""torch.compile over the blocks that a model repeats, each on its own: compiled once, and attention stays whole."""

from collections import Counter
from collections.abc import Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from gobrrr.treat.chart import Chart
from gobrrr.treat.compiling import VERSIONS, generated_otherwise, inductor_after
from gobrrr.treat.cross_entropy import LOSS
from gobrrr.treat.edit import Edit
from gobrrr.treat.fusing import fit_to_compile, fused_forecast, is_compiled
from gobrrr.treat.losses import and_the_loss, loss_beside
from gobrrr.treat.subject import Subject
from gobrrr.treat.treatment import Forecast, Stage, Unfit, treatment
from gobrrr.treat.treatments.compile_whole import compiled_sites
from gobrrr.work.op import Op

if TYPE_CHECKING:
    import torch

REPEATS = 2
"""Blocks of one class beside each other, at the least: of fewer the whole is as quickly compiled."""


@treatment(
    "compile-regions",
    "torch.compile, block by block",
    stage=Stage.FUSION,
    group="fusion",
    compiles=True,
    by_hand="""
    import torch

    # each on its own: one compilation serves all, and attention stays whole
    # gobrrr.apply changes the graph besides: without, it may gain less, or lose
    torch._dynamo.config.recompile_limit += $versions  # for blocks that differ
    options = $options
    $compiled
    """,
    fills=lambda _, sites: {"versions": str(VERSIONS * len(sites))},
)
class CompileRegions:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        fit_to_compile(chart)
        found = tuple(f"{root}:{path}" for root, model in chart.subject.models.items() for path in regions(model))
        if not found:
            raise Unfit("the model repeats no block")
        return (*found, *loss_beside(chart, partial(_is_in, _paths(found))))

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        inside = and_the_loss(chart, sites, partial(_is_in, _paths(sites)))
        return fused_forecast(chart, calls=len(sites), pads=False, inside=inside)

    def edits(self, subject: Subject, sites: tuple[str, ...], *, graphs: bool = False) -> Iterator[Edit]:
        backend = inductor_after(graphs=graphs)  # one for all, or nothing that is compiled serves a second block
        yield from generated_otherwise(subject.device)
        yield from compiled_sites(subject, sites, backend)


def _paths(sites: Iterable[str]) -> frozenset[str]:
    return frozenset(site.partition(":")[2] for site in sites if site != LOSS)


def _is_in(paths: frozenset[str], op: Op) -> bool:
    """An op's module is named by its class first, then by its path."""
    path = op.module.partition(".")[2]
    return is_compiled(op) and any(one in paths for one in (path, *_prefixes(path)))


def regions(model: "torch.nn.Module") -> list[str]:
    """Paths of the outermost repeated blocks, and of what stands beside them and is made of several parts."""
    blocks = list(_blocks(model, ""))
    around = {"", *(prefix for block in blocks for prefix in _prefixes(block))} if blocks else set()
    beside = [
        path
        for parent in around
        for path in _children(model.get_submodule(parent), parent)
        if path not in around and path not in blocks and _is_composed(model.get_submodule(path))
    ]
    return sorted({*blocks, *beside})


def _blocks(module: "torch.nn.Module", path: str) -> Iterator[str]:
    """None of a script, which calls its blocks by itself."""
    from torch.jit import ScriptModule

    if isinstance(module, ScriptModule):
        return
    kinds = Counter(type(child) for child in module.children() if _is_composed(child))
    for name, child in module.named_children():
        inner = f"{path}.{name}".lstrip(".")
        if kinds[type(child)] >= REPEATS:
            yield inner
        else:
            yield from _blocks(child, inner)


def _children(module: "torch.nn.Module", path: str) -> Iterator[str]:
    yield from (f"{path}.{name}".lstrip(".") for name, _ in module.named_children())


def _is_composed(module: "torch.nn.Module") -> bool:
    """Made of several layers: of a single one there is nothing to fuse."""
    from torch.nn import ModuleDict, ModuleList

    layers = [part for part in module.modules() if not any(part.children()) and part is not module]
    return len(layers) > 1 and not isinstance(module, ModuleList | ModuleDict)


def _prefixes(path: str) -> Iterator[str]:
    names = path.split(".")
    yield from (".".join(names[:length]) for length in range(1, len(names)))
