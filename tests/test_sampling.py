"""Watching while something runs: every answer counts, and no answer ends it."""

from threading import Event, active_count
from types import SimpleNamespace

import pytest

from gobrrr.machine import gpu_state
from gobrrr.machine.gpu_state import GpuUse, gpu_use
from gobrrr.machine.sampling import middle, sampling


def test_answers_arrive_while_the_body_runs_and_none_after_it():
    enough, asked = Event(), []

    def ask() -> int:
        asked.append(len(asked))
        if len(asked) == 3:
            enough.set()
        return asked[-1]

    before = active_count()
    with sampling(ask, period_s=0) as answers:
        assert enough.wait(60)
    assert answers == asked
    assert active_count() == before


def test_a_question_without_an_answer_is_asked_once():
    asked = Event()
    with sampling(asked.set, period_s=0) as answers:
        assert asked.wait(60)
    assert answers == []


def test_the_watcher_ends_with_a_body_that_raises():
    before = active_count()
    with pytest.raises(ZeroDivisionError), sampling(lambda: 1, period_s=0):
        raise ZeroDivisionError
    assert active_count() == before


@pytest.mark.parametrize(("values", "median"), [([1.0, 9.0, 2.0], 2.0), ([None, 3.0], 3.0), ([None], None), ([], None)])
def test_the_middle_is_that_of_what_is_known(values, median):
    assert middle(values) == median


class NVMLError(Exception):
    pass


def refused(*_) -> None:
    raise NVMLError


DRIVER = SimpleNamespace(
    NVMLError=NVMLError,
    NVML_CLOCK_SM=1,
    nvmlDeviceGetHandleByUUID=lambda uuid: uuid if uuid == "GPU-1" else refused(),
    nvmlDeviceGetUtilizationRates=lambda _handle: SimpleNamespace(gpu=97),
    nvmlDeviceGetMemoryInfo=lambda _handle: SimpleNamespace(used=1 << 30),
    nvmlDeviceGetClockInfo=lambda _handle, _which: 1980,
    nvmlDeviceGetPowerUsage=refused,
)
"""As NVML's module, for a GPU that does not tell its power."""


def test_what_the_driver_tells_has_our_units_and_what_it_does_not_tell_is_unknown(monkeypatch):
    monkeypatch.setattr(gpu_state, "_nvml", lambda: DRIVER)
    assert gpu_use("GPU-1") == GpuUse(util_percent=97.0, clock_hz=1.98e9, power_w=None, memory_bytes=float(1 << 30))
    assert gpu_use("GPU-2") is None
    assert gpu_use(None) is None


def test_without_a_driver_nothing_is_known(monkeypatch):
    monkeypatch.setattr(gpu_state, "_nvml", lambda: None)
    assert gpu_use("GPU-1") is None
