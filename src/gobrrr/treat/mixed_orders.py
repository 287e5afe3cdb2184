"""Sums along rows and along columns, as of a norm's gradient, in one kernel or in two.

Inductor makes them one where it can: what both read is read once. But each block of rows then leaves sums of its own,
and adding these up takes a library's kernel for each sum, twice 10 µs of an H200 for a norm. What the cache holds is
read again in less: in a GPT-2 with 8192 rows of 768 two kernels save 2 % of the step. From 16384 rows on, which the
cache does not hold, one kernel is the faster, by up to 6 % of a norm and a product.

The one file that knows how Inductor decides; `tests/test_treat_mixed_orders.py` says what is assumed.
"""

from typing import Any

from gobrrr.treat.edit import Edit, shared


def mixed_beyond_the_cache() -> Edit:
    import torch
    from torch._inductor.scheduler import MixOrderReduction

    may_be_one = vars(MixOrderReduction)["can_fuse"]

    def should_be_one(cls: Any, one: Any, other: Any) -> bool:
        if not may_be_one.__func__(cls, one, other):
            return False
        cache_bytes: int = torch.cuda.get_device_properties(one.get_device()).L2_cache_size
        return read_by_both_bytes(cls, one, other) > cache_bytes

    return shared(MixOrderReduction, "can_fuse", classmethod(should_be_one))


def read_by_both_bytes(orders: Any, one: Any, other: Any) -> int:
    """Of two nodes of Inductor's schedule, each tensor once."""
    from torch._inductor.virtualized import V

    common = set(orders.get_common_read(one, other))
    sizes: dict[str, int] = {}
    for dep in one.read_writes.reads:
        if dep.name in common:
            sizes[dep.name] = max(sizes.get(dep.name, 0), V.graph.get_dep_size_hint(dep))  # a part of it may be, too
    return sum(sizes.values())
