"""Gather, scatter and index: indices and the elements they touch, not the tensor they point into.

A scatter in place writes the touched elements only, and reads them first if it adds. A scatter that returns a
new tensor copies the old one as well. Repeated indices touch one element several times: an upper bound.
"""

from math import prod

from gobrrr.work.call import Call
from gobrrr.work.op import OpClass, TensorRef
from gobrrr.work.registry import counted, formula
from gobrrr.work.traffic import distinct_bytes
from gobrrr.work.work import Work


@formula(
    *"index _unsafe_index gather index_select take masked_select".split(),
    cls=OpClass.INDEXING,
)
def gather(call: Call) -> Work:
    """As many elements picked as come out, at most all there are."""
    source = call["self"]
    indices = distinct_bytes(call.tensors(*(name for name in call.args if name != "self")))
    picked = min(call.out.numel, source.unique) * source.item_bytes
    return counted(call, read=indices + picked)


def _scattered(call: Call, touched: int, *, adds: bool, others: float) -> Work:
    """`touched` elements of self written, from `others` bytes of indices and values."""
    target = call["self"]
    touched_bytes = min(touched, target.unique) * target.item_bytes
    flops = touched if adds else 0
    if call.in_place:
        read, written = others + (touched_bytes if adds else 0), touched_bytes
    else:
        read, written = others + target.unique_bytes, call.out.nbytes
    return counted(call, vector_flops=flops, vector={"fma": flops}, read=read, written=written)


@formula("index_put", "_index_put_impl", "_unsafe_index_put", cls=OpClass.INDEXING)
def index_put(call: Call) -> Work:
    """Index tensors are broadcast together; dimensions without one are taken whole."""
    others = distinct_bytes(call.tensors("indices", "values"))
    return _scattered(call, _indexed_elements(call), adds=bool(call["accumulate"]), others=others)


def _indexed_elements(call: Call) -> int:
    target: TensorRef = call["self"]
    indices: list[TensorRef | None] = list(call["indices"])
    if any(index is not None and index.dtype in ("bool", "uint8") for index in indices):
        return max(value.numel for value in call.tensors("indices", "values"))
    kept = [size for place, size in enumerate(target.shape) if place >= len(indices) or indices[place] is None]
    return broadcast_numel([index.shape for index in indices if index is not None]) * prod(kept)


def broadcast_numel(shapes: list[tuple[int, ...]]) -> int:
    width = max(map(len, shapes), default=0)
    aligned = [(1,) * (width - len(shape)) + tuple(shape) for shape in shapes]
    return prod(0 if 0 in sizes else max(sizes) for sizes in zip(*aligned, strict=True))


@formula("scatter", "scatter_add", "scatter_reduce", cls=OpClass.INDEXING)
def scatter(call: Call) -> Work:
    """One element of self per element of the index; a scalar source costs no bytes."""
    index = call["index"]
    (source,) = call.tensors("src") or (None,) if "src" in call.args else (None,)
    taken = min(index.numel, source.unique) * source.item_bytes if source is not None else 0
    adds = "scatter_add" in call.name or call.args.get("reduce") is not None
    return _scattered(call, index.numel, adds=adds, others=index.unique_bytes + taken)


@formula("index_add", "index_copy", "index_reduce", cls=OpClass.INDEXING)
def index_add(call: Call) -> Work:
    source = call["source"]
    adds = "copy" not in call.name
    return _scattered(call, source.numel, adds=adds, others=distinct_bytes((call["index"], source)))


@formula("index_fill", cls=OpClass.INDEXING)
def index_fill(call: Call) -> Work:
    index, target = call["index"], call["self"]
    touched = index.numel * target.numel // max(1, target.shape[call["dim"]] if target.shape else 1)
    return _scattered(call, touched, adds=False, others=index.unique_bytes)


@formula("masked_scatter", "put", cls=OpClass.INDEXING)
def masked_scatter(call: Call) -> Work:
    others = distinct_bytes(call.tensors(*(name for name in call.args if name != "self")))
    return _scattered(call, call["source"].numel, adds=bool(call.args.get("accumulate")), others=others)


@formula(
    *"nonzero argwhere searchsorted bucketize unique_consecutive _unique2 unique_dim".split(),
    cls=OpClass.INDEXING,
)
def search(call: Call) -> Work:
    """Read once, compared once, positions written. A search in a sorted sequence compares what it looks for."""
    sought = call.args.get("self")
    elements = sought.numel if isinstance(sought, TensorRef) else 1
    return counted(call, vector_flops=elements, vector={"fma": elements})


@formula(*"one_hot repeat_interleave take_along_dim".split(), cls=OpClass.INDEXING)
def expand_by_index(call: Call) -> Work:
    return counted(call)
