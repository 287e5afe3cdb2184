"""Shortcuts on fake tensors against what torch finds by itself."""

from unittest import mock

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch._subclasses.fake_tensor import FakeTensorMode

from gobrrr.work.fake import fake_tensors
from gobrrr.work.shortcuts import SHORTCUTS

ATEN = torch.ops.aten
SIZES = st.integers(1, 5)
DTYPES = st.sampled_from([torch.float32, torch.float16, torch.bfloat16])
RUNNING = (False, 0.1, 1e-5)
"""Not training, momentum, epsilon."""
LAYOUTS = ("contiguous", "channels_last", "transposed", "sliced", "narrow")


def laid_out(shape: tuple[int, int, int, int], layout: str, dtype: torch.dtype) -> torch.Tensor:
    image = torch.empty(shape, dtype=dtype)
    match layout:
        case "channels_last":
            return image.to(memory_format=torch.channels_last)
        case "transposed":
            return image.transpose(1, 3)
        case "sliced":
            return torch.empty((shape[0], 2 * shape[1], *shape[2:]), dtype=dtype)[:, ::2]
        case "narrow":  # a dimension of one with a stride of its own
            return image[:, :1]
    return image


IMAGES = st.builds(laid_out, st.tuples(SIZES, SIZES, SIZES, SIZES), st.sampled_from(LAYOUTS), DTYPES)


def looks(result):
    found = result if isinstance(result, tuple) else (result,)
    return [(one.shape, one.stride(), one.dtype, one.storage_offset()) for one in found]


def agrees(op, *args, **kwargs) -> bool:
    """Whether a shortcut was taken; if so its result is torch's."""
    with FakeTensorMode(allow_non_fake_inputs=True):
        found = SHORTCUTS[op](*args, **kwargs)
        if found is not None:
            assert looks(found) == looks(op(*args, **kwargs))
    return found is not None


@given(IMAGES, st.booleans(), st.booleans())
def test_batch_norm(image, has_weight, training):
    statistics = torch.empty(image.shape[1])
    weight = statistics if has_weight else None
    agrees(ATEN.native_batch_norm.default, image, weight, weight, statistics, statistics, training, 0.1, 1e-5)


@given(IMAGES, st.integers(1, 4), st.booleans())
def test_layer_norm(image, dims, has_weight):
    shape = image.shape[-dims:]
    weight = torch.empty(shape, dtype=image.dtype) if has_weight else None
    agrees(ATEN.native_layer_norm.default, image, list(shape), weight, weight, 1e-5)


@given(SIZES, SIZES, SIZES, st.booleans(), st.booleans(), DTYPES)
def test_addmm(m, n, k, full, transposed, dtype):
    bias = torch.empty((m, n) if full else (n,), dtype=dtype)
    other = torch.empty((n, k), dtype=dtype).t() if transposed else torch.empty((k, n), dtype=dtype)
    assert agrees(ATEN.addmm.default, bias, torch.empty((m, k), dtype=dtype), other)


@given(IMAGES, st.sampled_from(["flat", "split", "joined", "unknown"]))
def test_view(image, how):
    a, b, c, d = image.shape
    size = {"flat": [-1], "split": [a, 1, b, c, d], "joined": [a * b, c * d], "unknown": [a, b, -1]}[how]
    agrees(ATEN.view.default, image, size)


def test_a_view_shares_its_memory():
    with fake_tensors():
        whole = torch.empty(4, 6)
        assert whole.view(24).untyped_storage()._cdata == whole.untyped_storage()._cdata


@given(IMAGES, DTYPES)
def test_casts(image, dtype):
    agrees(ATEN._to_copy.default, image, dtype=dtype)


def test_what_models_do_all_the_time_is_short():
    image, rows = torch.empty(2, 3, 4, 4), torch.empty(2, 5, 8)
    assert agrees(ATEN.native_batch_norm.default, image, *[torch.empty(3)] * 4, *RUNNING)
    assert agrees(ATEN.native_layer_norm.default, rows, [8], torch.empty(8), torch.empty(8), 1e-5)
    assert agrees(ATEN.view.default, rows, [10, 8])
    assert agrees(ATEN._to_copy.default, rows, dtype=torch.float16)


@pytest.mark.parametrize(
    "step",
    [
        lambda: torch.addmm(torch.empty(4), torch.empty(2, 3), torch.empty(5, 4)),
        lambda: torch.addmm(torch.empty(3), torch.empty(2, 3), torch.empty(3, 4)),
        lambda: torch.empty(2, 3).view(7),
        lambda: torch.empty(2, 3).view(-1, -1),
        lambda: torch.empty(2, 3, 4).transpose(0, 1).view(24),
        lambda: torch.layer_norm(torch.empty(2, 3), [4]),
        lambda: ATEN.native_batch_norm(torch.empty(2, 3, 4, 4), torch.empty(5), None, *[torch.empty(3)] * 2, *RUNNING),
    ],
)
def test_what_does_not_fit_is_refused_as_before(step):
    with fake_tensors(), pytest.raises((RuntimeError, ValueError)):
        step()


def test_the_mode_asks_for_shortcuts():
    """torch's own method is private: were it renamed, counting would be right and slow."""
    asked = mock.Mock(return_value=None)
    with mock.patch.dict(SHORTCUTS, {ATEN.addmm.default: asked}), fake_tensors():
        torch.addmm(torch.empty(11), torch.empty(7, 13), torch.empty(13, 11))
    asked.assert_called_once()
