"""Measuring leaves no trace."""

import gc

import pytest
import torch

from gobrrr.machine.identity import identify
from gobrrr.machine.restore import fp32_precision, undisturbed

get, put = torch._C._get_fp32_precision_getter, torch._C._set_fp32_precision_setter
LAYERS = [("generic", "all"), ("cuda", "all"), ("cuda", "matmul"), ("mkldnn", "all"), ("mkldnn", "matmul")]


@pytest.fixture(autouse=True)
def _flags_as_they_were():
    before = [get(*layer) for layer in LAYERS]
    yield
    torch.set_float32_matmul_precision("highest")
    for layer, value in zip(LAYERS, before, strict=True):
        put(*layer, value)


@pytest.mark.parametrize("backend", ["cuda", "mkldnn"])
def test_precision_holds_inside_and_is_as_before_afterwards(backend):
    put(backend, "matmul", "tf32")
    with fp32_precision(backend, "ieee"):
        assert get(backend, "matmul") == "ieee"
    assert get(backend, "matmul") == "tf32"


def test_an_inherited_precision_is_not_pinned():
    torch.backends.fp32_precision = "tf32"
    with fp32_precision("cuda", "ieee"):
        assert get("cuda", "matmul") == "ieee"
    assert get("cuda", "matmul") == "tf32"
    torch.backends.fp32_precision = "ieee"
    assert get("cuda", "matmul") == "ieee"


@pytest.mark.parametrize("legacy", ["highest", "high", "medium"])
def test_the_older_switches_still_read_as_they_were_set(legacy):
    torch.set_float32_matmul_precision(legacy)
    allowed = torch.backends.cuda.matmul.allow_tf32
    for precision in ("tf32", "ieee"):
        with fp32_precision("cuda", precision):
            assert get("cuda", "matmul") == precision
    assert torch.get_float32_matmul_precision() == legacy
    assert torch.backends.cuda.matmul.allow_tf32 is allowed


def test_precision_is_restored_after_a_failure():
    put("cuda", "matmul", "tf32")
    with pytest.raises(ZeroDivisionError), fp32_precision("cuda", "ieee"):
        raise ZeroDivisionError
    assert get("cuda", "matmul") == "tf32"


def test_random_state_gradient_mode_and_collection_survive():
    before = torch.get_rng_state()
    with undisturbed(identify("cpu")):
        torch.rand(100)
        assert not torch.is_grad_enabled()
        assert not gc.isenabled()
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.is_grad_enabled()
    assert gc.isenabled()


def test_collection_stays_off_where_it_was_off():
    gc.disable()
    try:
        with undisturbed(identify("cpu")):
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_autocast_does_not_reach_the_probes():
    with torch.autocast("cpu", dtype=torch.bfloat16), undisturbed(identify("cpu")):
        assert torch.mm(torch.rand(4, 4), torch.rand(4, 4)).dtype == torch.float32
