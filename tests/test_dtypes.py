import json
import re

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

from gobrrr.dtypes import ITEM_BYTES, MATRIX_MODES, dtype_name

DTYPES = sorted({value for value in vars(torch).values() if isinstance(value, torch.dtype)}, key=str)
# Opaque bits and the deprecated quantized types are no numbers that an op reads.
NUMBERS = [
    dtype
    for dtype in DTYPES
    if dtype.is_floating_point or dtype.is_complex or re.fullmatch(r"torch\.(u?int\d+|bool)", str(dtype))
]


@pytest.fixture(scope="module")
def traced_spellings(tmp_path_factory):
    """How a trace recorded by this torch spells each type."""
    # complex32 and bcomplex32 are left out: torch warns that they are experimental.
    tensors = {dtype: torch.empty(6, dtype=dtype) for dtype in NUMBERS if "complex32" not in str(dtype)}
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True, acc_events=True) as recorded:
        for tensor in tensors.values():
            tensor.view(2, 3)
    path = tmp_path_factory.mktemp("trace") / "trace.json"
    recorded.export_chrome_trace(str(path))
    events = [event for event in json.loads(path.read_text())["traceEvents"] if event.get("ph") == "X"]
    views = sorted((event for event in events if event["name"] == "aten::view"), key=lambda event: event["ts"])
    return dict(zip(tensors, (view["args"]["Input type"][0] for view in views), strict=True))


@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
def test_every_number_type_of_torch_has_a_name_of_the_size_that_torch_says(dtype):
    assert ITEM_BYTES[dtype_name(str(dtype))] == dtype.itemsize


def test_the_number_types_are_all_there():
    """Guards the filter above: torch 2.13 has 10 floats, 3 complexes, 22 integers and bool."""
    assert len(NUMBERS) >= 36


def test_a_recorded_trace_spells_each_type_in_a_way_we_know(traced_spellings):
    assert {dtype: dtype_name(spelling) for dtype, spelling in traced_spellings.items()} == {
        dtype: dtype_name(str(dtype)) for dtype in traced_spellings
    }


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("torch.bfloat16", "bf16"),
        ("c10::BFloat16", "bf16"),
        ("long int", "int64"),
        ("float", "fp32"),
        ("torch.float8_e4m3fn", "fp8"),
        ("c10::complex<c10::Half>", "complex32"),
    ],
)
def test_one_type_has_one_name_however_it_is_spelled(spelling, name):
    assert dtype_name(spelling) == name


@pytest.mark.parametrize("name", ITEM_BYTES)
def test_a_name_is_its_own_name(name):
    assert dtype_name(name) == name


@pytest.mark.parametrize(
    "spelling", ["", "c10::Float12", "torch.", "Int", "Scalar", "ScalarList", "GenericList", "torch.bits8", "tf32"]
)
def test_an_unknown_spelling_is_unknown_and_never_one_byte(spelling):
    assert dtype_name(spelling) is None


def test_every_matrix_mode_is_stored_in_a_type_of_known_size():
    assert {mode for mode in MATRIX_MODES if mode not in ITEM_BYTES} == {"tf32"}
