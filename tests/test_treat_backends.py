"""The kernels of attention: a step's own calls are found, the fastest is chosen, and preferred only within the step."""

import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.nn import functional

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr import schema
from gobrrr.exam import Exam
from gobrrr.treat import backends, probe
from gobrrr.treat.advice import idle_masks, left_to_the_author
from gobrrr.treat.backends import AttentionShape, attending, attention_seconds, attention_shapes, preferring
from gobrrr.treat.compiling import inductor_after
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose, Unfit
from treating import inference, subject, switched

EXAMS = Path(__file__).parent / "data" / "exams"

KIND = TREATMENTS["sdpa-backend"].kind


def shape(**changes) -> AttentionShape:
    size = (2, 4, 8, 16)
    plain = {"query": size, "key": size, "value": size, "mask": None, "mask_dtype": None, "dtype": torch.float32}
    return AttentionShape(**plain | {"dropout": 0.0, "causal": False, "grouped": False, "trains": False} | changes)


def test_calls_of_a_step_are_found_with_what_decides_their_time():
    layers, heads = 2, 2
    (found,) = attention_shapes(subject(switched("sdpa"))).items()
    assert found == (shape(query=(2, heads, 6, 8), key=(2, heads, 6, 8), value=(2, heads, 6, 8)), layers)
    assert attention_shapes(subject(inference())) == {}


def test_in_autocast_a_call_has_the_type_that_it_is_cast_to():
    q = torch.randn(1, 2, 8, 16, requires_grad=True)

    def step():
        with torch.autocast("cpu", torch.bfloat16):
            return functional.scaled_dot_product_attention(q, q, q, is_causal=True)

    (found,) = attention_shapes(subject_of(lambda: step))
    assert (found.dtype, found.causal, found.trains) == (torch.bfloat16, True, True)


def test_behind_a_compiler_the_calls_are_those_without_it():
    found = subject(switched("sdpa"))
    before = attention_shapes(found)
    found.become((Dose(TREATMENTS["compile"], ("model:",)),))
    assert attention_shapes(found) == before
    assert len(found.plan) == 1


@pytest.mark.parametrize("trains", [True, False])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"causal": True},
        {"mask": (8, 8), "mask_dtype": torch.bool},
        {"key": (2, 2, 8, 16), "value": (2, 2, 8, 16), "grouped": True},
        {"query": (8, 16), "key": (8, 16), "value": (8, 16)},
    ],
)
def test_a_call_can_be_made_again_from_its_shape(trains, changes):
    made = shape(trains=trains, **changes)
    found = attending(made, "math", "cpu")()
    first = found[0] if trains else found
    assert first.shape == made.query
    assert len(found) == 3 if trains else not first.requires_grad


# **** choosing, with times that are made up ****


@pytest.fixture
def times(monkeypatch):
    """Seconds by kernel, in the place of a device; what is not there takes no call."""
    known = {}

    def attends(_shape, name, _device):
        if name not in known:
            warnings.warn("Flash attention kernel not used because:", stacklevel=1)  # to nobody: it would be an error
            raise RuntimeError("No available kernel")
        return known[name]

    monkeypatch.setattr(backends, "attending", attends)
    monkeypatch.setattr(probe, "device_seconds", lambda made, _device: made())
    backends._seconds.cache_clear()
    yield known
    backends._seconds.cache_clear()


def chart():
    found = subject(switched("sdpa"))
    found.device = "cuda:0"
    ops = (SimpleNamespace(name="aten::_scaled_dot_product_cudnn_attention"),)
    kernels = [SimpleNamespace(seconds=4e-3, floor=SimpleNamespace(seconds=1e-3))]
    return SimpleNamespace(
        is_cuda=True, ops=ops, subject=found, kernels=lambda _wanted: kernels, forecast=lambda **seconds: seconds
    )


def test_the_fastest_kernel_is_chosen_and_promised_what_it_was_faster(times):
    times |= {None: 2e-4, "cudnn": 2e-4, "flash": 1.5e-4}
    made = chart()
    assert KIND.sites(made) == ("flash",)
    assert KIND.forecast(made, ("flash",)) == {"device_s": pytest.approx(1e-3), "most_device_s": pytest.approx(3e-3)}


def test_what_is_hardly_faster_is_left(times):
    times |= {None: 2e-4, "cudnn": 2e-4, "flash": 1.95e-4}
    with pytest.raises(Unfit, match="own choice"):
        KIND.sites(chart())


def test_calls_that_nobody_sees_are_left():
    made = chart()
    made.subject = subject(inference())
    with pytest.raises(Unfit, match="inside of another"):
        KIND.sites(made)


def test_each_shape_counts_as_often_as_it_is_called(times):
    times |= {None: 1e-3, "efficient": 2e-3}
    shapes = [(shape(), 3), (shape(causal=True), 2)]
    assert attention_seconds(shapes, "cpu") == {None: pytest.approx(5e-3), "efficient": pytest.approx(1e-2)}


# **** preferring one ****


def attends(x: torch.Tensor) -> torch.Tensor:
    return functional.scaled_dot_product_attention(x, x, x)


def test_a_preference_holds_within_the_call():
    seen = []
    preferring(lambda: seen.append(torch.backends.cuda.flash_sdp_enabled()), "math")()
    assert (seen, torch.backends.cuda.flash_sdp_enabled()) == ([False], True)


@pytest.mark.parametrize(("name", "flash"), [("flash", True), ("math", False)])
def test_a_compiler_sees_it(name, flash):
    q = torch.randn(1, 2, 8, 16)
    torch.compiler.reset()
    traced = torch.compile(preferring(attends, name, "math"), backend=inductor_after(), fullgraph=True)
    found, code = run_and_get_code(traced, q)
    assert any("flash_attention_for_cpu" in text for text in code) == flash
    torch.testing.assert_close(found, attends(q))


@pytest.mark.gpu
def test_every_fused_kernel_that_takes_a_call_has_its_time():
    size = (8, 12, 1024, 64)
    made = shape(query=size, key=size, value=size, dtype=torch.bfloat16, dropout=0.1, causal=True, trains=True)
    backends._seconds.cache_clear()
    found = attention_seconds([(made, 12)], "cuda:0")
    assert {None, "flash", "efficient"} <= set(found)
    assert all(seconds > 0 for seconds in found.values())


# **** what is left to the author ****


FUTURE = torch.ones(8, 8, dtype=torch.bool).triu(1)


@pytest.mark.parametrize(
    ("mask", "means"),
    [
        (torch.ones(1, 1, 8, 8, dtype=torch.bool), "leaves nothing out"),
        (torch.zeros(8, 8), "leaves nothing out"),
        (~FUTURE, "leaves out what comes later"),
        (torch.zeros(2, 1, 8, 8).masked_fill(FUTURE, torch.finfo(torch.float32).min), "leaves out what comes later"),
        (torch.randn(8, 8), None),
        (torch.zeros(8, 8).masked_fill(FUTURE, -1.0), None),
        (torch.arange(8) < 5, None),
        (FUTURE, None),
    ],
)
def test_a_mask_that_says_no_more_than_a_name_is_named(mask, means):
    q = torch.randn(2, 4, 8, 16)
    spread = mask.expand(8, 8) if mask.dim() == 1 else mask
    (found,) = attention_shapes(subject_of(lambda: lambda: functional.scaled_dot_product_attention(q, q, q, spread)))
    assert found.mask_means == means
    advised = list(idle_masks({found: 3}))
    assert len(advised) == (means is not None)
    assert all("called 3 times" in one.evidence[0] for one in advised)


def test_what_only_the_author_can_change_is_listed_with_its_place():
    (found,) = (
        one for one in left_to_the_author(schema.read(Exam, EXAMS / "tiny_with_sync.json.gz")) if one.code == "B102"
    )
    assert found.seconds_at_stake
    assert any(".py:" in line for line in found.evidence)


def test_what_treatments_change_is_no_advice():
    codes = {one.code for one in left_to_the_author(schema.read(Exam, EXAMS / "gpt2.json.gz"))}
    assert not codes & {"B101", "B201", "B207", "B302"}
