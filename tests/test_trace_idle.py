"""Why the device of a trace was idle."""

import pytest

from gobrrr.diagnose.diagnosis import diagnose
from gobrrr.trace_examination import examine_trace
from traces import Tape, additions

LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def causes(tape: Tape, path) -> dict[str, float]:
    exam = examine_trace(tape.save(path))
    assert exam.idle is not None
    assert sum(exam.idle.values()) == pytest.approx(1)
    made = diagnose(exam)
    assert sum(made.idle_causes_s.values()) == pytest.approx(made.idle_s)
    return dict(exam.idle)


def test_a_host_that_loads_data_is_named(tmp_path):
    tape = Tape()
    for number in range(4):
        begin = 1000.0 * number
        tape.step(number, begin, 999.0)
        tape.span("note", LOADER, begin + 1, 900.0)
        tape.op("aten::add", begin + 910, 30.0, [[8], [8], []], ["float", "float", "Scalar"])
        tape.launch("add_kernel", begin + 915, begin + 930, 5.0)
    found = causes(tape, tmp_path / "t.json")
    assert max(found, key=found.__getitem__) == "data_loading"
    assert found["data_loading"] == pytest.approx(0.9, abs=0.02)


def test_a_host_that_dispatches_is_named(tmp_path):
    found = causes(additions(steps=4, kernel_us=2.0), tmp_path / "t.json")
    assert set(found) == {"dispatch", "python", "launch_latency"}


def test_a_device_that_is_never_in_want_has_latency_alone(tmp_path):
    found = causes(additions(steps=6, kernel_us=500.0), tmp_path / "t.json")
    assert max(found, key=found.__getitem__) == "launch_latency"
