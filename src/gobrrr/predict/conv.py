"""Convolutions: an implicit matrix product, or Winograd's for 3x3 in fp32; depthwise ones stream.

Fitted to a public table of fp32 convolutions on P100 and V100 (benchmarks/predict.py).
"""

from dataclasses import dataclass, replace
from math import ceil, prod

from gobrrr.diagnose.residency import Traffic
from gobrrr.predict.accelerator import Accelerator
from gobrrr.predict.estimate import NOTHING, Estimate, memory_time, overlapped
from gobrrr.predict.product import Product, on_vector_units, product, streamed
from gobrrr.predict.stream import Stream, stream


@dataclass(frozen=True, slots=True)
class Convolution:
    batch: int
    channels: int
    filters: int
    image: tuple[int, ...]
    output: tuple[int, ...]
    kernel: tuple[int, ...]
    groups: int = 1
    unit_stride: bool = True
    mode: str = "fp32"
    item_bytes: float = 4
    channels_last: bool = False

    @property
    def is_depthwise(self) -> bool:
        return self.groups > 1 and self.groups == self.channels

    @property
    def input_bytes(self) -> float:
        return self.batch * self.channels * prod(self.image) * self.item_bytes

    @property
    def weight_bytes(self) -> float:
        return self.filters * (self.channels // self.groups) * prod(self.kernel) * self.item_bytes

    @property
    def output_bytes(self) -> float:
        return self.batch * self.filters * prod(self.output) * self.item_bytes

    @property
    def flops(self) -> float:
        taps = (self.channels // self.groups) * prod(self.kernel)
        return 2.0 * self.batch * self.filters * prod(self.output) * taps


_IMPLICIT = 0.95
_IMPLICIT_SIMT = 0.62
"""Of a product's rate: addresses are computed on the way, except for a kernel of one tap."""
_WINOGRAD = 0.71
"""Of a product's rate, in many small batches."""
_TRANSFORMED = 0.4
"""Of the transformed values' traffic that reaches memory."""
_WINOGRAD_S = 100e-6
"""Its extra kernels, the one for the filters among them."""
_WINOGRAD_TILE = 4
_WINOGRAD_POINTS = 36
"""A tile of 4x4 outputs of a 3x3 filter takes 6x6 products in place of 144."""
_GROUPED_FILTERS = 32
"""Narrow groups are multiplied together up to this width, with zeros between them."""
_UNEVEN_GROUPS = 1.4
"""Times as long with channels last, where a group's width is no power of two and libraries have no kernel for it:
regnets on an RTX 3090. Inductor assumes 1.36 of all grouped ones."""
_INDEXED = 1 << 31
"""Elements that fast kernels can number."""
_UNINDEXED = 2.3
"""Times as long as channels first and copies there and back, for a depthwise kernel with channels last and more
elements than that: vision models on an RTX 3090. With fewer the layout makes no difference."""
_TAP_FIRST = 1.1
"""Times as long with one tap and channels first: a product for each image, its rows where the image's are."""
_DEPTHWISE = 0.2
"""Of the vector rate: each product needs a load of its own."""
_DEPTHWISE_SHARPNESS = 2.0


def convolution(shape: Convolution, traffic: Traffic, accelerator: Accelerator) -> Estimate:
    """The forward pass; both backward ones do as much."""
    if shape.is_depthwise:
        return _depthwise(shape, traffic, accelerator)
    best = _implicit(shape, traffic, accelerator)
    if prod(shape.kernel) == 1 and not shape.channels_last and not on_vector_units(shape.mode, accelerator):
        return best.scaled(_TAP_FIRST)
    if shape.kernel == (3, 3) and shape.unit_stride and shape.groups == 1 and on_vector_units(shape.mode, accelerator):
        best = min(best, _winograd(shape, accelerator), key=lambda one: one.seconds)
    return best


def relaid(shape: Convolution, accelerator: Accelerator) -> Estimate:
    """Matrix units want channels last: other images and results are copied there and back, unless a tap is all."""
    if shape.channels_last or shape.is_depthwise or prod(shape.kernel) == 1 or on_vector_units(shape.mode, accelerator):
        return NOTHING
    return _copied(shape, Stream.POINTWISE, accelerator)


def _copied(shape: Convolution, way: Stream, accelerator: Accelerator) -> Estimate:
    """Image and result, into another layout."""
    copies = (Traffic(dram_read=size, dram_written=size) for size in (shape.input_bytes, shape.output_bytes))
    first, second = (stream(way, copy, accelerator) for copy in copies)
    return first + second


def _implicit(shape: Convolution, traffic: Traffic, accelerator: Accelerator) -> Estimate:
    rows = shape.batch * prod(shape.output)
    taps = shape.channels // shape.groups * prod(shape.kernel)
    joined = max(1, min(shape.groups, _GROUPED_FILTERS * shape.groups // shape.filters))
    groups = ceil(shape.groups / joined)
    as_product = Product(rows, ceil(shape.filters / groups), taps * joined, groups, shape.mode)
    if prod(shape.kernel) > 1:
        share = _IMPLICIT_SIMT if on_vector_units(shape.mode, accelerator) else _IMPLICIT
        as_product = replace(as_product, k=ceil(taps / share))
    one = product(as_product, memory_time(traffic, accelerator, streamed(accelerator)), accelerator)
    return one.scaled(_UNEVEN_GROUPS) if shape.channels_last and _is_uneven(shape) else one


def _is_uneven(shape: Convolution) -> bool:
    return shape.groups > 1 and (shape.channels // shape.groups).bit_count() > 1


def _winograd(shape: Convolution, accelerator: Accelerator) -> Estimate:
    """Transform image and filters, multiply in 36 batches, transform back."""
    tiles = shape.batch * prod(ceil(size / _WINOGRAD_TILE) for size in shape.output)
    into, out = (tiles * channels * _WINOGRAD_POINTS * shape.item_bytes for channels in (shape.channels, shape.filters))
    filters = shape.weight_bytes * _WINOGRAD_POINTS / prod(shape.kernel)
    as_product = Product(tiles, shape.filters, ceil(shape.channels / _WINOGRAD), _WINOGRAD_POINTS, shape.mode)
    operands = Traffic(dram_read=_TRANSFORMED * (into + filters), dram_written=_TRANSFORMED * out)
    multiplied = product(as_product, memory_time(operands, accelerator, streamed(accelerator)), accelerator)
    before = Traffic(dram_read=shape.input_bytes + shape.weight_bytes, dram_written=_TRANSFORMED * (into + filters))
    after = Traffic(dram_read=_TRANSFORMED * out, dram_written=shape.output_bytes)
    transforms = stream(Stream.POINTWISE, before, accelerator) + stream(Stream.POINTWISE, after, accelerator)
    return multiplied + transforms + Estimate(_WINOGRAD_S, 0.0, 0.0, _WINOGRAD_S)


def _depthwise(shape: Convolution, traffic: Traffic, accelerator: Accelerator) -> Estimate:
    first = _depthwise_first(shape, traffic, accelerator)
    if not shape.channels_last or max(shape.input_bytes, shape.output_bytes) < _INDEXED * shape.item_bytes:
        return first
    return (first + _copied(shape, Stream.STRIDED, accelerator)).scaled(_UNINDEXED)


def _depthwise_first(shape: Convolution, traffic: Traffic, accelerator: Accelerator) -> Estimate:
    streaming = stream(Stream.WINDOWED, traffic, accelerator)
    compute_s = shape.flops / (_DEPTHWISE * accelerator.vector_flops_per_s.get("fp32", float("inf")))
    seconds = overlapped(compute_s, streaming.seconds, _DEPTHWISE_SHARPNESS)
    return Estimate(seconds, compute_s, streaming.memory_s, streaming.latency_s)
