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


@pytest.mark.parametrize("name", ["gloo:all_reduce", "c10d::barrier", "record_param_comms", "FSDP::all_gather (layer)"])
def test_a_host_at_a_collective_is_named_even_where_it_waits_in_a_call(tmp_path, name):
    tape = Tape()
    for number in range(4):
        begin = 1000.0 * number
        tape.step(number, begin, 999.0)
        tape.span("note" if ":" in name[:5] else "op", name, begin + 1, 900.0)
        tape.call("cudaStreamSynchronize", begin + 100, 700.0)
        tape.launch("add_kernel", begin + 915, begin + 930, 5.0)
    found = causes(tape, tmp_path / "t.json")
    assert found["communication"] == pytest.approx(0.9, abs=0.02)
    assert "sync" not in found


def test_what_the_profiler_did_itself_is_called_so_whatever_it_fell_into(tmp_path):
    tape = Tape()
    for number in range(4):
        begin = 1000.0 * number
        tape.step(number, begin, 999.0)
        tape.op("aten::add", begin + 10, 930.0, [[8], [8], []], ["float", "float", "Scalar"])
        tape.span("overhead", "Activity Buffer Request", begin + 100, 700.0, pid=-1, tid=0)
        tape.launch("add_kernel", begin + 915, begin + 930, 5.0)
    found = causes(tape, tmp_path / "t.json")
    assert found["profiler"] == pytest.approx(0.7, abs=0.02)
    assert found["dispatch"] == pytest.approx(0.23, abs=0.03)


def test_each_kernel_knows_what_was_waited_for_before_it(tmp_path):
    tape = Tape()
    for number in range(4):
        begin = 1000.0 * number
        tape.step(number, begin, 999.0)
        tape.launch("first", begin + 10, begin + 20, 5.0)
        tape.span("note", LOADER, begin + 50, 400.0)
        tape.launch("second", begin + 460, begin + 470, 5.0)
        tape.call("cudaDeviceSynchronize", begin + 480, 400.0)
        tape.launch("third", begin + 890, begin + 900, 5.0)
        tape.launch("fourth", begin + 895, begin + 910, 5.0)
    gaps = {one.name: one.gap for one in examine_trace(tape.save(tmp_path / "t.json")).kernels}
    assert gaps == {"first": "python", "second": "data_loading", "third": "sync", "fourth": "launch_latency"}
