"""Random numbers in compiled code, four from each draw.

Philox makes four numbers from ten rounds of multiplications. Inductor takes one of them, and draws again for the next
element: in a kernel of dropout that else only reads and writes, a third of an H200's time goes there. Here an element's
number follows from its place alone, for every kernel that asks, as one that recomputes a forward does: of the draw of
its place divided by four, the one that the remainder names. Where a row's elements lie side by side, four of them share
a draw.

The one file that knows how Inductor writes random numbers; `tests/test_treat_draws.py` says what is assumed.
"""

from collections.abc import Iterator
from typing import Any

from gobrrr.treat.edit import Edit, shared

AT_ONCE = 4


def drawn_by_four() -> Iterator[Edit]:
    from torch._inductor.codegen.triton import TritonKernelOverrides, TritonOverrides

    yield shared(TritonKernelOverrides, "index_expr", classmethod(_placed(vars(TritonKernelOverrides)["index_expr"])))
    yield shared(TritonOverrides, "rand", staticmethod(_rand))


def _placed(index_expr: Any) -> Any:
    """What it gives remembers what it stands for."""

    def placed(cls: Any, expr: Any, dtype: Any) -> Any:
        variable = index_expr.__func__(cls, expr, dtype)
        variable.stands_for = expr
        return variable

    return placed


def _rand(seed: Any, place: Any) -> str:
    """Code for a number between 0 and 1: its name, after the lines that make it."""
    import torch
    from torch._inductor.virtualized import V

    kernel, begins = V.kernel, _row_begins(place) if _is_one(seed) else None
    number, *four = (str(kernel.cse.newvar(dtype=torch.float32, shape=place.shape)) for _ in range(1 + AT_ONCE))
    first, second, third, fourth = four

    def lines(draw: str, number_is: str) -> list[str]:
        return [f"{', '.join(four)} = tl.rand4x({seed}, ({draw}).to(tl.uint32))", f"{number} = {number_is}"]

    low, even = f"{place} % {AT_ONCE} < 2", f"{place} % 2 == 0"
    each = lines(
        f"{place} // {AT_ONCE}",
        f"tl.where({low}, tl.where({even}, {first}, {second}), tl.where({even}, {third}, {fourth}))",
    )
    if begins is None:
        kernel.compute.writelines(each)
        return number
    *_, block = place.shape
    within = f"tl.arange(0, {block} // {AT_ONCE})[{'None, ' * (len(place.shape) - 1)}:]"
    of_four = lines(
        f"({kernel.index_to_str(begins)}) // {AT_ONCE} + {_last(kernel).prefix}offset // {AT_ONCE} + {within}",
        f"tl.reshape(tl.join(tl.join({first}, {third}), tl.join({second}, {fourth})), [{', '.join(place.shape)}])",
    )
    for condition, chosen in ((f"if {block} >= {AT_ONCE}:", of_four), ("else:", each)):
        kernel.compute.writeline(condition)
        with kernel.compute.indent():
            kernel.compute.writelines(chosen)
    return number


def _is_one(seed: Any) -> bool:
    """And not as many as there are elements, as one that was kept for a gradient may be read."""
    return all(size == "1" for size in seed.shape or ())


def _row_begins(place: Any) -> Any:
    """The place of the first element of a row, if the blocks of this kernel are made of rows, and begin where their
    offset says: those that share a row, or stand for a part of one, do not.
    """
    from torch._inductor.codegen.simd import IterationRangesRoot
    from torch._inductor.virtualized import V

    kernel = V.kernel
    if not hasattr(place, "stands_for") or place.shape != tuple(kernel.dense_size_list()):
        return None
    if kernel.cooperative_reduction or type(_last(kernel)) is not IterationRangesRoot:
        return None
    expr = kernel.prepare_indexing(place.stands_for)
    entries = kernel.range_tree_nodes.items()
    along = [(symbol, one) for symbol, one in entries if one.root is _last(kernel) and symbol in expr.free_symbols]
    is_whole = len(along) == 1 and along[0][1].divisor == 1 and along[0][1].length == _last(kernel).numel
    return beginning(expr, along[0][0]) if is_whole else None


def _last(kernel: Any) -> Any:
    """The range along which the last dimension of a block lies."""
    return max((tree for tree in kernel.range_trees if tree.tensor_dim is not None), key=lambda tree: tree.tensor_dim)


def beginning(place: Any, along: Any) -> Any:
    """Of places that follow each other in fours, where `along` is 0; None of others."""
    begins = place - along
    return begins if along not in begins.free_symbols and begins % AT_ONCE == 0 else None
