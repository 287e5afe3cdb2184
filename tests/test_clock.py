"""The clock of a step: the host's, read on an idle device."""

import pytest

from gobrrr.timing.clock import DeviceClock


def test_a_clock_never_goes_back():
    clock = DeviceClock("cpu")
    readings = [clock.now_s() for _ in range(100)]
    assert readings == sorted(readings)


def test_on_the_cpu_there_is_nothing_to_wait_for(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.accelerator, "synchronize", lambda *_: pytest.fail("waited for a device"))
    DeviceClock("cpu").synchronize()


def test_the_device_of_the_clock_is_the_one_that_is_waited_for(monkeypatch):
    torch = pytest.importorskip("torch")
    waited_for = []
    monkeypatch.setattr(torch.accelerator, "synchronize", waited_for.append)
    DeviceClock("cuda:1").synchronize()
    assert waited_for == ["cuda:1"]


@pytest.mark.gpu
def test_after_a_synchronisation_the_device_is_idle():
    import torch

    done = torch.cuda.Event()
    square = torch.randn(4096, 4096, device="cuda")
    for _ in range(50):
        square @ square
    done.record()
    DeviceClock("cuda:0").synchronize()
    assert done.query()
