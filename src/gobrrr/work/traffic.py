"""Bytes: how many distinct ones a set of views covers."""

from collections import defaultdict
from collections.abc import Iterable

from gobrrr.work.op import TensorRef


def distinct_bytes(tensors: Iterable[TensorRef]) -> float:
    """Each distinct element once, however many of the views show it.

    Views of one storage are counted together: identical views once, and all together never more than the
    stretch of storage from the first byte touched to the last. So `x + x` and `x + x.T` read x once, and two
    halves of one buffer are read in full. Overlapping views with gaps between are an upper bound.
    """
    by_storage: dict[int, set[TensorRef]] = defaultdict(set)
    apart = 0.0
    for tensor in tensors:
        if tensor.storage is None:
            apart += tensor.unique_bytes
        elif tensor.numel:
            by_storage[tensor.storage].add(tensor)
    return apart + sum(_distinct_in_storage(views) for views in by_storage.values())


def _distinct_in_storage(views: set[TensorRef]) -> float:
    summed = sum(view.unique_bytes for view in views)
    if len(views) == 1:
        return summed
    first = min(view.offset * view.item_bytes for view in views)
    last = max((view.offset + view.span) * view.item_bytes for view in views)
    return min(summed, last - first)
