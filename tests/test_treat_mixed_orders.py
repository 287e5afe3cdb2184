"""Sums along rows and along columns: one kernel where that saves reading from memory, two where the cache has it."""

from inspect import signature
from types import SimpleNamespace

import pytest
import torch
from torch._inductor.virtualized import V

from gobrrr.treat.compiling import generated_otherwise, patient_compiler
from gobrrr.treat.edit import swap_off, swap_on
from gobrrr.treat.mixed_orders import mixed_beyond_the_cache, read_by_both_bytes

MIB = 1 << 20


def node(*names):
    reads = [SimpleNamespace(name=name, number=number) for number, name in enumerate(names)]
    return SimpleNamespace(read_writes=SimpleNamespace(reads=reads), get_device=lambda: "cuda:0")


def graph(sizes):
    """Of a name the first read is of all of it, others of a part."""
    return V.set_graph_handler(SimpleNamespace(get_dep_size_hint=lambda dep: sizes[dep.name] >> dep.number // 3))


class Orders:
    @classmethod
    def get_common_read(cls, one, other):
        mine, its = ([dep.name for dep in side.read_writes.reads] for side in (one, other))
        return [name for name in mine if name in its]


def test_what_both_read_counts_once_and_what_one_of_them_reads_not_at_all():
    with graph({"x": 25 * MIB, "dy": 12 * MIB, "weights": MIB, "mean": 1}):
        assert read_by_both_bytes(Orders, node("x", "weights", "dy", "x"), node("dy", "x", "mean")) == 37 * MIB


@pytest.mark.parametrize(("x_mib", "wanted"), [(25, False), (50, True)])
def test_they_are_one_kernel_only_beyond_the_cache(monkeypatch, x_mib, wanted):
    from torch._inductor.scheduler import MixOrderReduction

    monkeypatch.setattr(MixOrderReduction, "can_fuse", classmethod(lambda *_: True))
    monkeypatch.setattr(MixOrderReduction, "get_common_read", Orders.get_common_read)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: SimpleNamespace(L2_cache_size=60 * MIB))
    edits = swap_on([mixed_beyond_the_cache()])
    try:
        with graph({"x": x_mib * MIB, "dy": x_mib // 2 * MIB}):
            assert MixOrderReduction.can_fuse(node("x", "dy"), node("x", "dy")) is wanted
    finally:
        swap_off(edits)


def test_inductor_asks_two_nodes_what_both_read_and_a_graph_how_large_that_is():
    from torch._inductor.graph import GraphLowering
    from torch._inductor.scheduler import MixOrderReduction

    assert list(signature(MixOrderReduction.can_fuse).parameters) == ["node1", "node2"]
    assert list(signature(MixOrderReduction.get_common_read).parameters) == ["node1", "node2"]
    assert list(signature(GraphLowering.get_dep_size_hint).parameters)[:2] == ["self", "dep"]


def test_what_inductor_would_not_mix_is_not_looked_at_and_its_rule_comes_back(monkeypatch):
    from torch._inductor.scheduler import MixOrderReduction

    theirs = vars(MixOrderReduction)["can_fuse"]
    assert isinstance(theirs, classmethod)
    with monkeypatch.context() as patch:
        never = classmethod(lambda *_: False)
        patch.setattr(MixOrderReduction, "can_fuse", never)
        edits = swap_on([mixed_beyond_the_cache()])
        assert MixOrderReduction.can_fuse(None, None) is False
        swap_off(edits)
        assert vars(MixOrderReduction)["can_fuse"] is never
    assert vars(MixOrderReduction)["can_fuse"] is theirs


@pytest.mark.gpu
@pytest.mark.parametrize(("rows", "mixed"), [(8192, 0), (65536, 1)])
def test_a_norms_gradient_is_one_kernel_only_where_its_rows_do_not_stay_in_the_cache(rows, mixed):
    from torch._inductor import metrics
    from torch._inductor.utils import fresh_cache

    torch.manual_seed(0)
    x, slope = (torch.randn(rows, 768, device="cuda") for _ in range(2))
    if not mixed and x.nbytes + slope.nbytes > torch.cuda.get_device_properties().L2_cache_size:
        pytest.skip("this cache holds less than Inductor would mix")
    given = [one.requires_grad_() for one in (x, torch.rand(768, device="cuda"), torch.rand(768, device="cuda"))]

    def normed(x, weight, bias):
        return torch.nn.functional.layer_norm(x, (768,), weight, bias)

    expected = torch.autograd.grad(normed(*given), given, slope)
    edits = swap_on(generated_otherwise("cuda"))
    try:
        torch.compiler.reset()
        metrics.reset()
        with patient_compiler(), fresh_cache():
            found = torch.autograd.grad(torch.compile(normed)(*given), given, slope)
    finally:
        swap_off(edits)
    assert metrics.codegen_mix_order_reduction == mixed
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)
