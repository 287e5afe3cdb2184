"""Linear layers that read the same tensor, as those of query, key and value, computed by one product.

Each of them asks for the whole product and takes its part; under the compiler the same product is computed once. Their
parameters become parts of one tensor, so that names, values and what is loaded into them stay right. For inference:
gradients would not find their way to the parts.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from gobrrr.predict.host import COMPILED
from gobrrr.timing.state import preserved
from gobrrr.treat.chart import Chart, multiplying_for
from gobrrr.treat.edit import Edit, attribute, data
from gobrrr.treat.fusing import compiled_here
from gobrrr.treat.product import Product, merged, parts, product_of
from gobrrr.treat.subject import AND, Subject
from gobrrr.treat.treatment import Forecast, NotYet, Stage, Unfit, treatment

if TYPE_CHECKING:
    import torch


@treatment(
    "merged-projections",
    "layers that read the same tensor as one product",
    stage=Stage.STRUCTURE,
    compiles=True,
    inference=True,
    by_hand="""
    import torch
    from torch.nn.functional import linear


    def merge(layers):
        sizes = [layer.out_features for layer in layers]
        weight = torch.cat([layer.weight.detach() for layer in layers])
        biases = [layer.bias for layer in layers if layer.bias is not None]
        bias = torch.cat(biases).detach() if biases else None
        left = []

        def first(x):
            found, *left[:] = linear(x, weight, bias).split(sizes, -1)
            return found

        layers[0].forward = first
        for layer in layers[1:]:  # are called after it, with the same
            layer.forward = lambda x: left.pop(0)
        for layer, own in zip(layers, weight.split(sizes)):
            layer.weight.data = own  # which is not there twice


    for names in $names:
        merge([$model.get_submodule(name) for name in names])
    """,
)
class MergedProjections:
    def sites(self, chart: Chart) -> tuple[str, ...]:
        if chart.trains:
            raise Unfit("only for inference")
        if not compiled_here(chart.subject):
            raise NotYet("only a compiler computes once what several layers ask for")
        found = tuple(AND.join(names) for names in sharing_input(chart.subject))
        if not found:
            raise Unfit("no layers of one module read the same tensor")
        return found

    def forecast(self, chart: Chart, sites: tuple[str, ...]) -> Forecast:
        """One kernel where there were several: what these take above their floors is paid once, by the slowest.

        Generated kernels do not always say whose product they compute: then each takes at least what any kernel does,
        and those of one size are one kernel already, because they read the same row in the same loop.
        """
        shortest_s = chart.exam.ceilings.shortest_kernel_class_s.get("gemm", 0.0)
        spent_s = [_above_floors_s(chart, site) for site in sites]
        likely_s = [own_s or [shortest_s] * _sizes(chart, site) for own_s, site in zip(spent_s, sites, strict=True)]
        most_s = [own_s or [shortest_s] * len(site.split(AND)) for own_s, site in zip(spent_s, sites, strict=True)]
        saved = sum(len(each_s) - 1 for each_s in likely_s)
        return chart.forecast(
            device_s=sum(sum(each_s) - max(each_s) for each_s in likely_s),
            host_s=saved * COMPILED * chart.case.dispatch_s,
            most_device_s=sum(map(sum, most_s)),
        )

    def edits(self, subject: Subject, sites: tuple[str, ...]) -> Iterator[Edit]:
        for site in sites:
            layers = subject.modules_at(site)
            products = [product_of(layer) for layer in layers]
            if all(isinstance(one, Product) for one in products):
                yield from _merging(layers, products)  # type: ignore[arg-type]


def _merging(layers: "list[torch.nn.Module]", products: list[Product]) -> Iterator[Edit]:
    """Parameters lie in the product from now on; of weights that are int8 by now the parameters are out of use."""
    whole = merged(products)
    for layer, product, part in zip(layers, products, parts(whole, [len(one.weight) for one in products]), strict=True):
        if product.scale is None:
            yield data(product.weight, whole.weight[part.start : part.stop])
            if product.bias is not None and whole.bias is not None:
                yield data(product.bias, whole.bias[part.start : part.stop])
        yield attribute(layer, "forward", part)


def _above_floors_s(chart: Chart, site: str) -> list[float]:
    """Of each kernel that multiplies for one of these layers, what it takes above its floor."""
    kernels = chart.products_of(site.split(AND))
    return [max(0.0, one.seconds - (0.0 if one.floor is None else one.floor.seconds)) for one in kernels]


def _sizes(chart: Chart, site: str) -> int:
    """How many different ones these layers' products have; of products that the program does not name, one each."""
    products = filter(multiplying_for(site.split(AND)), chart.ops)
    shapes = {op.outputs[0].shape for op in products if op.outputs}
    return len(shapes) or len(site.split(AND))


def sharing_input(subject: Subject) -> list[tuple[str, ...]]:
    """Names of layers of one module, alike but for their outputs, that read the same tensor: seen in one step.

    A layer that is now with these and now with those is with nobody.
    """
    together: defaultdict[Any, list[str]] = defaultdict(list)
    held: list[Any] = []

    def reading(name: str) -> Any:
        def hook(layer: Any, args: Any) -> None:
            if args:
                held.append(args[0])  # so that no other tensor takes its identity
                alike = layer.weight.dtype, layer.weight.device, layer.bias is None
                tensor = id(args[0]), _version(args[0])
                together[(name.rpartition("." if "." in name else ":")[0], tensor, alike)].append(name)

        return hook

    with subject.ended():
        hooks = [layer.register_forward_pre_hook(reading(name)) for name, layer in _free(subject)]
        try:
            with preserved(subject.origin):
                subject.run()
                groups = set(map(tuple, together.values()))
        finally:
            for one in hooks:
                one.remove()
    times = Counter(name for group in groups for name in group)
    return sorted(group for group in groups if len(group) > 1 and all(times[name] == 1 for name in group))


def _version(tensor: "torch.Tensor") -> int:
    """How often it was written; nobody counts for tensors of inference mode."""
    return 0 if tensor.is_inference() else tensor._version  # noqa: SLF001 (torch documents it by this name)


def _free(subject: Subject) -> "Iterator[tuple[str, torch.nn.Module]]":
    """Linear layers whose weights are nobody else's and lie in memory of their own."""
    from torch.nn import Linear

    layers = [(name, module) for name, module in subject.modules() if type(module) is Linear]
    owners = Counter(id(parameter) for _, module in subject.modules() for parameter in module.parameters(recurse=False))
    for name, layer in layers:
        own = list(layer.parameters())
        if all(owners[id(one)] == 1 and one.untyped_storage().nbytes() == one.nbytes for one in own):
            yield name, layer
