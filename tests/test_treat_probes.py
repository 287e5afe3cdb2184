"""What is timed alone before it is promised: calls as the step makes them, or would make them, and their times."""

from collections import Counter
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import gobrrr.treat.treatments  # noqa: F401 (registers them)
from gobrrr import Workload, schema
from gobrrr.diagnose.flow import data_flow
from gobrrr.exam import Exam
from gobrrr.treat import backends, convolution, probe
from gobrrr.treat.attention_gain import attention_forecast, spelled_shapes
from gobrrr.treat.backends import AttentionShape, attention_shapes
from gobrrr.treat.backends import attending as attended
from gobrrr.treat.chart import Chart
from gobrrr.treat.convolution import (
    Convolution,
    Pooling,
    convolutions,
    convolving,
    pooling,
    poolings,
    seconds_by_layout,
)
from gobrrr.treat.subject import subject_of
from gobrrr.treat.treatment import TREATMENTS, Dose
from gobrrr.treat.treatments.channels_last import MOST
from gobrrr.work.counter import Counter as OpCounter
from gobrrr.work.op import OpClass
from treating import images, subject, switched

PATIENTS = Path(__file__).parent / "data" / "patients" / "h200"


@pytest.fixture(autouse=True)
def _nothing_is_known_before():
    backends._seconds.cache_clear()
    convolution._seconds.cache_clear()
    yield
    backends._seconds.cache_clear()
    convolution._seconds.cache_clear()


def test_a_probe_leaves_random_numbers_as_they_were():
    before, calls = torch.get_rng_state(), []
    seconds = probe.device_seconds(lambda: partial(calls.append, torch.rand(3)), "cpu")
    assert seconds > 0
    assert 1 < len(calls) <= 1 + probe.REPEATS
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("each_s", "calls", "seconds"),
    [([1e-3] * 10, 10, 1e-3), ([1e-3, 0.1, *[1e-3] * 8], 10, 1e-3), ([0.15, 0.17], 2, 0.16), ([9.0], 1, 9.0)],
    ids=["quick", "disturbed", "long", "very long"],
)
def test_a_probe_calls_as_often_as_it_needs_and_a_disturbed_call_does_not_count(each_s, calls, seconds):
    clock, ran = [0.0], []

    def run():
        clock[0] += each_s[len(ran)]
        ran.append(1)

    assert probe._cpu_seconds(run, lambda: clock[0]) == pytest.approx(seconds)
    assert len(ran) == calls


# **** attention ****


def program(workload) -> SimpleNamespace:
    """Of a chart, what shapes are read from."""
    workload.step()
    with OpCounter() as counter:
        workload.step()
    ops = counter.program().ops
    return SimpleNamespace(ops=ops, case=SimpleNamespace(flow=data_flow(ops)))


class SelfAttention(nn.Module):
    """Spelled out or called, by a switch; the mask is added, fills, or is not there."""

    def __init__(
        self, *, spelled: bool, mask: torch.Tensor | None = None, rate: float = 0.0, late: bool = False
    ) -> None:
        super().__init__()
        self.spelled, self.mask, self.rate, self.late = spelled, mask, rate, late
        self.inward = nn.Linear(16, 48)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in self.inward(x).chunk(3, -1))
        if not self.spelled:
            mask = (
                None if self.mask is None else self.mask.logical_not() if self.mask.dtype == torch.bool else self.mask
            )
            return nn.functional.scaled_dot_product_attention(q, k, v, mask, self.rate)
        scores = q @ k.mT * 8**-0.5
        if self.late:  # something that has nothing to do with the scores is computed meanwhile
            v = (v.transpose(1, 2).flatten(-2) @ self.inward.weight[:16]).unflatten(-1, (2, 8)).transpose(1, 2)
        if self.mask is not None and self.mask.dtype == torch.bool:
            scores = scores.masked_fill(self.mask, float("-inf"))
        elif self.mask is not None:
            scores = scores + self.mask
        return nn.functional.dropout(scores.softmax(-1), self.rate) @ v


def attending(*, trains: bool = False, **options) -> Workload:
    torch.manual_seed(0)
    model, x = SelfAttention(**options), torch.randn(2, 6, 16)
    if trains:
        return Workload(model, x, loss=lambda out: out.square().mean())
    return Workload(model.eval(), x)


FUTURE = torch.ones(6, 6, dtype=torch.bool).triu(1)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize(
    "mask", [None, FUTURE, torch.zeros(2, 1, 6, 6), torch.zeros(2, 2, 6, 6)], ids=["none", "bool", "added", "each"]
)
def test_what_is_spelled_out_could_be_the_call_that_its_twin_makes(mask, trains):
    (spelled,) = spelled_shapes(program(attending(spelled=True, mask=mask, trains=trains)))
    (called,) = attention_shapes(subject_of(lambda: attending(spelled=False, mask=mask, trains=trains)))
    told = ("query", "key", "value", "mask", "mask_dtype", "dtype", "dropout", "grouped", "trains")
    assert [getattr(spelled, name) for name in told] == [getattr(called, name) for name in told]


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("mask", [None, torch.bool, torch.float32])
def test_by_hand_is_computed_what_the_call_computes(mask, trains):
    size = (2, 2, 6, 8)
    how = {"mask": None if mask is None else (2, 1, 6, 6), "mask_dtype": mask, "dtype": torch.float32, "trains": trains}
    call = AttentionShape(query=size, key=size, value=size, dropout=0.0, causal=False, grouped=False, **how)
    found = []
    for name in (None, backends.BY_HAND):
        torch.manual_seed(0)
        found.append(attended(call, name, "cpu")())
    torch.testing.assert_close(*found)


def test_a_library_that_is_switched_would_make_those_calls():
    spelled, called = spelled_shapes(program(switched("eager"))), attention_shapes(subject(switched("sdpa")))
    assert Counter(spelled) == called


def test_where_heads_and_masks_do_not_fit_no_call_is_made_up():
    """The mask is added to four dimensions and the softmax is taken of three, as in OPT."""

    class Flat(SelfAttention):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (one.unflatten(-1, (2, 8)).transpose(1, 2) for one in self.inward(x).chunk(3, -1))
            scores = (q @ k.mT + self.mask).flatten(0, 1)
            return scores.softmax(-1) @ v.flatten(0, 1)

    model = Flat(spelled=True, mask=torch.zeros(2, 1, 6, 6)).eval()
    assert list(spelled_shapes(program(Workload(model, torch.randn(2, 6, 16))))) == [None]


def test_what_is_dropped_is_seen_and_what_is_computed_meanwhile_is_no_mask():
    (dropped,) = spelled_shapes(program(attending(spelled=True, rate=0.1, trains=True)))
    (late,) = spelled_shapes(program(attending(spelled=True, late=True)))
    assert dropped.dropout > 0
    assert (late.mask, late.dropout) == (None, 0.0)


def test_one_call_is_promised_what_the_twin_of_an_unfused_attention_was_faster(monkeypatch):
    sick, healthy = (
        schema.read(Exam, PATIENTS / f"B202-unfused_attention-{twin}.json.gz") for twin in ("sick", "healthy")
    )
    chart = Chart(sick, SimpleNamespace(device="cuda:0"))
    (shape,) = spelled_shapes(chart)
    assert shape.query == shape.key == shape.value == (8, 16, 2048, 64)
    called_s, spelled_s = (sum(kernel.seconds for kernel in twin.kernels) for twin in (healthy, sick))
    monkeypatch.setattr(backends, "attending", lambda _shape, name, _device: called_s if name is None else spelled_s)
    monkeypatch.setattr(probe, "device_seconds", lambda made, _device: made())
    found = attention_forecast(chart)
    assert found.speedup == pytest.approx(sick.step_s / healthy.step_s, rel=0.05)
    assert found.low < found.speedup <= found.high


def test_where_a_call_cannot_be_made_a_share_of_the_finding_is_promised(monkeypatch):
    def refuses(*_):
        raise RuntimeError("No available kernel")

    monkeypatch.setattr(backends, "attending", refuses)
    monkeypatch.setattr(probe, "device_seconds", lambda made, _device: made())
    chart = Chart(schema.read(Exam, PATIENTS / "B202-unfused_attention-sick.json.gz"), SimpleNamespace(device="cuda:0"))
    found, most_s = attention_forecast(chart), chart.device_s_of("B202")
    assert found.speedup < found.high == pytest.approx(chart.exam.step_s / (chart.exam.step_s - most_s))


# **** convolutions ****


class Twice(nn.Module):
    """A convolution that is called with images of two sizes, the second time by its keyword, and one under autocast."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.narrow = nn.Conv2d(3, 4, 3, stride=2, padding=1), nn.Conv2d(4, 4, 3, groups=4, padding="same")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found = self.first(x) + self.first(input=x)
        with torch.autocast("cpu", torch.bfloat16):
            return self.narrow(found).float() + self.first(x[..., :8, :8]).mean()


SITES = ("model:first", "model:narrow")


def test_calls_of_convolutions_are_found_with_what_decides_their_time():
    model = Twice()
    made = subject(Workload(model, torch.randn(2, 3, 16, 16), loss=lambda out: out.sum()))
    found = convolutions(made, SITES, trains=True)
    first = {"weight": (4, 3, 3, 3), "stride": (2, 2), "padding": (1, 1), "dilation": (1, 1), "groups": 1}
    narrow = {"weight": (4, 1, 3, 3), "stride": (1, 1), "padding": "same", "dilation": (1, 1), "groups": 4}
    assert found == {
        Convolution(images=(2, 3, 16, 16), dtype=torch.float32, wanted=(False, True), **first): 1,
        Convolution(images=(2, 3, 8, 8), dtype=torch.bfloat16, wanted=(False, True), **first): 1,
        Convolution(images=(2, 4, 8, 8), dtype=torch.bfloat16, wanted=(True, True), **narrow): 1,
    }
    assert not any(module._forward_pre_hooks for module in model.modules())


def test_behind_a_compiler_the_convolutions_are_those_without_it():
    found = subject(images())
    sites = ("model:0", "model:3")
    before = convolutions(found, sites, trains=False)
    found.become((Dose(TREATMENTS["compile"], ("model:",)),))
    assert convolutions(found, sites, trains=False) == before
    assert sum(before.values()) == 2


@pytest.mark.parametrize("wanted", [(False, False), (False, True), (True, True)])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_a_convolution_can_be_made_again_in_either_layout(layout, wanted):
    call = Convolution((2, 3, 16, 16), (4, 3, 3, 3), (2, 2), (1, 1), (1, 1), 1, torch.float32, wanted)
    found = convolving(call, layout, "cpu")()
    if any(wanted):
        assert [one.shape for one in found] == [
            size for size, one in zip((call.images, call.weight), wanted, strict=True) if one
        ]
    else:
        assert found.shape == (2, 4, 8, 8)
        assert found.is_contiguous(memory_format=layout)


def convolving_chart(monkeypatch, *, first_s: float, last_s: float):
    seconds = {torch.contiguous_format: first_s, torch.channels_last: last_s}
    monkeypatch.setattr(convolution, "convolving", lambda _call, layout, _device: seconds[layout])
    monkeypatch.setattr(probe, "device_seconds", lambda made, _device: made())
    op = SimpleNamespace(cls=OpClass.CONTRACTION, name="aten::convolution")
    return SimpleNamespace(
        subject=subject(images()),
        trains=False,
        kernels=lambda wanted: [SimpleNamespace(seconds=1e-3)] if wanted(op) else [],
        forecast=lambda **seconds: seconds,
    )


@pytest.mark.parametrize(
    ("last_s", "likely_s", "most_s"), [(6e-3, 0.25e-3, 0.4e-3), (4e-3, 0.5e-3, 0.5e-3), (9e-3, 0.0, 0.4e-3)]
)
def test_channels_last_is_promised_what_its_convolutions_are_faster_alone(monkeypatch, last_s, likely_s, most_s):
    chart = convolving_chart(monkeypatch, first_s=8e-3, last_s=last_s)
    found = TREATMENTS["channels-last"].kind.forecast(chart, ("model:0", "model:3"))
    assert found == {"device_s": pytest.approx(likely_s), "most_device_s": pytest.approx(most_s)}


def pooled(**options) -> Workload:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.MaxPool2d(2, padding=1), nn.AdaptiveAvgPool2d(1))
    return Workload(model, torch.randn(2, 3, 16, 16), **options)


@pytest.mark.parametrize("trains", [False, True])
def test_poolings_are_found_and_can_be_made_again_in_either_layout(trains):
    made = subject(pooled(loss=lambda out: out.sum()) if trains else pooled())
    found = poolings(made, trains=trains)
    assert {(call.images, call.wants): count for call, count in found.items()} == {
        ((2, 4, 14, 14), trains): 1,
        ((2, 4, 8, 8), trains): 1,
    }
    assert {call.kind.partition("(")[0] for call in found} == {"MaxPool2d", "AdaptiveAvgPool2d"}
    largest = next(call for call in found if "Max" in call.kind)
    for layout in (torch.contiguous_format, torch.channels_last):
        result = pooling(largest, layout, "cpu")()
        assert [one.shape for one in result] == [largest.images] if trains else result.shape == (2, 4, 8, 8)


def test_a_pooling_that_tells_places_has_a_gradient_too():
    module = nn.MaxPool2d(2, return_indices=True)
    call = Pooling((2, 3, 8, 8), "MaxPool2d", torch.float32, wants=True, module=module)
    (gradient,) = pooling(call, torch.channels_last, "cpu")()
    assert gradient.shape == call.images


@pytest.mark.parametrize(("last_s", "likely_s"), [(1e-3, 0.8 * 2e-3), (1.1e-3, 0.8 * 2e-3 - 0.1 * 8e-3), (1.5e-3, 0.0)])
def test_channels_last_is_promised_what_its_poolings_are_faster_alone_less_what_its_convolutions_lose(
    monkeypatch, last_s, likely_s
):
    pooled_s = {torch.contiguous_format: 5e-3, torch.channels_last: 1e-3}
    convolved_s = {torch.contiguous_format: 1e-3, torch.channels_last: last_s}
    monkeypatch.setattr(convolution, "convolving", lambda _call, layout, _device: convolved_s[layout])
    monkeypatch.setattr(convolution, "pooling", lambda _call, layout, _device: pooled_s[layout])
    monkeypatch.setattr(probe, "device_seconds", lambda made, _device: made())
    took_s = [
        (SimpleNamespace(cls=OpClass.OTHER, name="aten::max_pool2d_with_indices"), 2e-3),
        (SimpleNamespace(cls=OpClass.CONTRACTION, name="aten::convolution"), 8e-3),
    ]
    chart = SimpleNamespace(
        subject=subject(pooled()),
        trains=False,
        kernels=lambda wanted: [SimpleNamespace(seconds=seconds) for op, seconds in took_s if wanted(op)],
        forecast=lambda **seconds: seconds,
    )
    found = TREATMENTS["channels-last"].kind.forecast(chart, ("model:0",))
    assert found["device_s"] == pytest.approx(likely_s)
    assert found["most_device_s"] == pytest.approx(0.8 * 2e-3 + MOST * 8e-3)


def test_convolutions_that_nobody_calls_or_that_cannot_be_made_have_no_times():
    unbatched = Convolution((3, 8, 8), (4, 3, 3, 3), (1, 1), (0, 0), (1, 1), 1, torch.float32, (False, False))
    assert seconds_by_layout({}, "cpu") is None
    assert seconds_by_layout({unbatched: 1}, "cpu") is None
