"""Documents that hold impossible numbers are refused in a sentence, and no edit of one ends in a traceback."""

import gzip
import io
import json
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import partial, reduce
from operator import getitem
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from gobrrr import schema
from gobrrr.bounds import MOST_LEVELS
from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.errors import BadInput
from gobrrr.exam import Exam
from gobrrr.report import lab, predict, treat
from gobrrr.report.diagnosis import render
from gobrrr.report.formats import rendered
from reported import kept_lab, predicted, treated
from test_exam import in_modules

MLP = gzip.decompress((Path(__file__).parent / "data" / "mlp.json.gz").read_bytes())


def edited(*edits: tuple[tuple[Any, ...], Any]) -> dict[str, Any]:
    """The recorded Exam with other values at these places; few windows, for what is resampled takes long."""
    data: dict[str, Any] = json.loads(MLP)
    for (*way, last), value in ((("window_step_s",), data["window_step_s"][:5]), *edits):
        place: Any = data
        for key in way:
            place = place[key]
        place[last] = value
    return data


def shown(data: dict[str, Any]) -> str:
    diagnosis, file = diagnose(schema.from_document(Exam, data)), io.StringIO()
    Console(file=file, width=120).print(render(diagnosis, "gobrrr show"))
    return schema.dumps(diagnosis) + file.getvalue()


OPERAND = ("program", "ops", 0, "inputs", 0)


@pytest.mark.parametrize(
    ("place", "value", "named"),
    [
        (("window_step_s",), [], "number of windows"),
        (("window_step_s",), [0, 0], "the step time is"),
        (("window_step_s",), [1e-3, -1e-3], "window's step time"),
        (("step_interval_s",), [-1, 1], "interval"),
        (("batch_test", "pairs_s"), [[0, 1]], "batch test"),
        (("kernels", 0, "seconds"), -1e-6, "time of a kernel"),
        (("kernels", 0, "seconds"), 1e308, "time of a kernel"),
        (("kernels", 0, "fused_from"), [10**6], "op that a kernel does"),
        (("idle",), {"python": 50}, "idle"),
        (("idle",), {"python": 0.6, "sync": 0.6}, "idle"),
        (("program", "ops", 0, "module"), "a." * 3000, "levels of a module"),
        (("program", "ops", 0, "work", "bytes_read"), -1, "work of an op"),
        ((*OPERAND, 2), [10**200, 2], "tensor's size"),
        ((*OPERAND, 2), [2**62, 4], "number of elements"),
        ((*OPERAND, 3), [1, 1, 1, 1, 1], "strides"),
        (("ceilings", "cache_bytes"), 10**400, "cache_bytes"),
        (("ceilings", "dram_bytes_per_s"), 0, "dram_bytes_per_s"),
        (("ceilings", "matmul_flops_per_s", "fp32"), -1.0, "matmul_flops_per_s"),
        (("ceilings", "shortest_kernel_s"), -1.0, "shortest_kernel_s"),
        (("steps",), 0, "number of steps"),
    ],
)
def test_what_cannot_be_is_refused_by_name(place, value, named):
    with pytest.raises(BadInput, match=named) as refused:
        schema.from_document(Exam, edited((place, value)))
    assert str(refused.value).startswith("the Exam is damaged: ")


def test_the_deepest_module_that_is_taken_can_be_told():
    deep = diagnose(in_modules((".".join("a" * MOST_LEVELS), 1.0)))
    assert "a.a.a" in schema.dumps(deep)
    Console(file=io.StringIO()).print(render(deep, "gobrrr show"))


def leaves(data: Any, way: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every value in it that holds no other, with its place."""
    if not isinstance(data, dict | list):
        yield way, data
        return
    for key, part in data.items() if isinstance(data, dict) else enumerate(data):
        yield from leaves(part, (*way, key))


NUMBERS = st.sampled_from([0, -1, 1, 0.5, 1e-320, 1e30, 1e308, -1e308, 2**62, 10**200, 10**400])
STRINGS = st.sampled_from(
    ["", "a." * 3000, "contraction", "transfer", "fp64", "aten::convolution", "aten::_flash_attention_backward"]
)
OTHERS = st.none() | st.lists(NUMBERS, max_size=3) | st.dictionaries(STRINGS, NUMBERS, max_size=2)
LEAVES = list(leaves(edited()))


@settings(max_examples=40)
@given(st.data(), st.sampled_from(LEAVES))
def test_whatever_is_changed_in_an_exam_it_is_diagnosed_or_refused(data, leaf):
    """Mostly to another of its kind: what is of no kind that it can be, reading refuses."""
    place, value = leaf
    other = data.draw(st.one_of(STRINGS if isinstance(value, str) else NUMBERS, OTHERS))
    with suppress(BadInput):
        assert shown(edited((place, other)))


OTHER_DOCUMENTS = {"treatment": treated(), "predictions": predicted(), "lab": kept_lab()}
RENDERED = {"treatment": partial(treat.render, following="next"), "predictions": predict.render, "lab": lab.render}
OTHER_LEAVES = [
    (kind, place, value)
    for kind, document in OTHER_DOCUMENTS.items()
    for place, value in leaves(schema.document_data(document))
]


@settings(max_examples=80)
@given(st.data(), st.sampled_from(OTHER_LEAVES))
def test_whatever_is_changed_in_another_document_it_is_shown_or_refused(data, leaf):
    kind, place, value = leaf
    other = data.draw(st.one_of(STRINGS | st.just("\udcff\n") if isinstance(value, str) else NUMBERS, OTHERS))
    changed = deepcopy(schema.document_data(OTHER_DOCUMENTS[kind]))
    holder = reduce(getitem, place[:-1], changed)
    holder[place[-1]] = other
    with suppress(BadInput):
        found = schema.from_document(type(OTHER_DOCUMENTS[kind]), changed)
        Console(file=io.StringIO()).print(RENDERED[kind](found))
        for ending in (".md", ".html"):
            assert rendered(kind, found, Path(f"x{ending}"))


@pytest.mark.parametrize("name", ["aten::convolution", "aten::convolution_backward", "aten::_flash_attention_backward"])
@pytest.mark.parametrize("operands", [[], [[1, 0, [], [], "fp32"]] * 4, [[1, 0, [0, 0], [0, 1], "fp32"]] * 4])
def test_an_op_whose_operands_are_not_what_its_name_says_is_diagnosed(name, operands):
    op = ("program", "ops", 0)
    assert shown(edited(((*op, "name"), name), ((*op, "cls"), "contraction"), ((*op, "inputs"), operands)))


def test_a_recorded_step_may_have_held_no_kernels():
    """As the first of a trace: the median tells what a step takes."""
    assert schema.from_document(Exam, edited((("window_step_s",), [0, 1e-3, 1e-3]))).step_s == 1e-3
