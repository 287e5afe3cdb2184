"""A Product: what a linear layer computes, apart from the layer, so that it can be computed otherwise.

Frozen and without state, so that a compiler traces it as it traces the layer. The layer keeps its parameters and their
names; only its `forward` is another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

INT8 = 127


@dataclass(frozen=True)
class Product:
    weight: "torch.Tensor"
    bias: "torch.Tensor | None"
    scale: "torch.Tensor | None" = None
    """Of each output, in a column, where the weight is int8."""

    def __call__(self, input: "torch.Tensor") -> "torch.Tensor":  # noqa: A002 (torch's name)
        from torch.nn.functional import linear

        if self.scale is None:
            return linear(input, self.weight, self.bias)
        # Scaled before it is summed: a sum of products with numbers up to 127 may be too large for fp16.
        return linear(input, (self.weight * self.scale).to(input.dtype), self.bias)


@dataclass(frozen=True)
class Part:
    """Some of a product's outputs: what one of several layers would have computed."""

    whole: Product
    start: int
    stop: int

    def __call__(self, input: "torch.Tensor") -> "torch.Tensor":  # noqa: A002
        return self.whole(input)[..., self.start : self.stop]


def product_of(layer: "torch.nn.Module") -> Product | Part | None:
    """As the layer computes it now; None where somebody else has changed how."""
    forward = vars(layer).get("forward")
    if forward is None:
        return Product(layer.weight, layer.bias)  # type: ignore[arg-type]
    return forward if isinstance(forward, Product | Part) else None


def merged(products: Sequence[Product]) -> Product:
    """One product whose outputs are those of all, one after the other."""
    import torch

    def joined(tensors: "Sequence[torch.Tensor | None]") -> "torch.Tensor | None":
        there = [tensor.detach() for tensor in tensors if tensor is not None]
        return torch.cat(there) if there else None

    weight = torch.cat([one.weight.detach() for one in products])
    return Product(weight, joined([one.bias for one in products]), joined([one.scale for one in products]))


def parts(whole: Product, sizes: Sequence[int]) -> list[Part]:
    return [Part(whole, start, stop) for start, stop in pairwise(accumulate(sizes, initial=0))]


def quantized(product: Product) -> Product:
    """Weights in int8 with a scale for each output: the largest weight of a row is 127."""
    import torch

    if product.scale is not None:
        return product
    weight = product.weight.detach().float()
    scale = weight.abs().amax(1, keepdim=True).clamp(min=torch.finfo(torch.float32).tiny) / INT8
    return Product((weight / scale).round().to(torch.int8), product.bias, scale)
