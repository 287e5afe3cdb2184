"""What is drawn for Perfetto is read back with its own protobuf classes."""

import json
import shutil
import sys
from collections import defaultdict
from dataclasses import dataclass, replace

import pytest
from click.testing import CliRunner

from gobrrr import schema
from gobrrr.cli import gobrrr
from gobrrr.diagnose.attribute import attribute
from gobrrr.report.perfetto import packed
from gobrrr.report.tracks import Level, Slice, Step, Track, step_of
from gobrrr.timing.kernel import KernelKind
from gobrrr.trace_examination import examine_trace
from test_exam import exam, kernel
from traces import additions, shared

protos = pytest.importorskip("perfetto.protos.perfetto.trace.perfetto_trace_pb2")


@dataclass
class Read:
    """The tracks of a file, by the names of their step and their own."""

    slices: dict
    levels: dict
    notes: dict


def read(data: bytes) -> Read:
    """As a viewer does: events in the order of the file, a slice from its beginning to the next end on its track."""
    trace = protos.Trace()
    trace.ParseFromString(data)
    described = {p.track_descriptor.uuid: p.track_descriptor for p in trace.packet if p.HasField("track_descriptor")}
    names = {uuid: (described[one.parent_uuid].name, one.name) for uuid, one in described.items() if one.parent_uuid}
    found = Read(defaultdict(list), defaultdict(list), {})
    opened = defaultdict(list)
    before = 0
    for packet in trace.packet:
        assert packet.trusted_packet_sequence_id
        if not packet.HasField("track_event"):
            continue
        assert packet.timestamp >= before
        before = packet.timestamp
        event, track = packet.track_event, names[packet.track_event.track_uuid]
        if event.type == protos.TrackEvent.TYPE_SLICE_BEGIN:
            opened[track].append((event.name, packet.timestamp))
            found.notes[track, event.name] = {
                one.name: one.string_value if one.HasField("string_value") else one.double_value
                for one in event.debug_annotations
            }
        elif event.type == protos.TrackEvent.TYPE_SLICE_END:
            name, start_ns = opened[track].pop()
            found.slices[track].append((name, start_ns, packet.timestamp))
        else:
            assert described[event.track_uuid].HasField("counter")
            found.levels[track].append((packet.timestamp, event.double_counter_value))
    assert not any(opened.values())
    return found


def test_tracks_slices_and_counters_come_back():
    step = Step(
        "a step",
        (
            Track("ops", (Slice("one", 0.0, 2e-6, {"kernel": "k", "floor_s": 1e-6}), Slice("two", 2e-6, 1e-6))),
            Track("attained", levels=(Level(0.0, 0.5), Level(2e-6, 0.0))),
        ),
    )
    found = read(packed([step, replace(step, name="another")]))
    for name in ("a step", "another"):
        assert found.slices[name, "ops"] == [("one", 0, 2000), ("two", 2000, 3000)]
        assert found.levels[name, "attained"] == [(0, 0.5), (2000, 0.0)]
        assert found.notes[(name, "ops"), "one"] == {"kernel": "k", "floor_s": 1e-6}


def test_what_begins_before_the_step_moves_all_else():
    found = read(packed([Step("s", (Track("gaps", (Slice("host", -1e-6, 1e-6), Slice("host", 5e-6, 1e-6))),))]))
    assert found.slices["s", "gaps"] == [("host", 0, 1000), ("host", 6000, 7000)]


def test_every_kernel_has_a_regime_and_every_gap_a_cause():
    made = exam(kernel(0, 4.0), replace(kernel(6.0, 2.0), gap="sync", launched_s=5.0), step_s=10.0)
    tracks = {track.name: track for track in step_of(made).tracks}
    assert [one.seconds for one in tracks["ops"].slices] == [4.0, 2.0]
    assert {one.name for one in tracks["regimes"].slices} <= {"compute", "bandwidth", "uncounted"}
    assert [(one.name, one.start_s, one.seconds) for one in tracks["gaps"].slices] == [("sync", 4.0, 2.0)]


def test_gaps_that_nobody_saw_are_the_hosts_or_the_devices():
    late, queued = replace(kernel(2.0, 1.0), launched_s=1.5), replace(kernel(4.0, 1.0), launched_s=0.5)
    made = exam(replace(kernel(0, 1.0), launched_s=0.0), late, queued, step_s=5.0)
    (gaps,) = [track for track in step_of(made).tracks if track.name == "gaps"]
    assert [one.name for one in gaps.slices] == ["host", "launch_latency"]


def test_streams_have_tracks_of_their_own_and_nothing_overlaps_on_one():
    made = exam(
        kernel(0, 4.0),
        replace(kernel(1.0, 5.0), stream=9, kind=KernelKind.COMMUNICATION),
        replace(kernel(3.0, 2.0), stream=9),
        step_s=10.0,
    )
    tracks = {track.name: track for track in step_of(made).tracks}
    (other,) = [name for name in tracks if name.startswith("ops") and name.endswith("9")]
    assert [(one.start_s, one.seconds) for one in tracks[other].slices] == [(1.0, 2.0), (3.0, 2.0)]
    assert tracks["regimes, stream 9"].slices[0].name == "communication"


def test_a_real_trace_is_drawn_as_it_is_diagnosed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    made = examine_trace(shared("gpt2_train_b8x1024_bf16.json.gz"))
    found = read(packed([step_of(made)]))
    kernels, _ = attribute(made)
    step = f"{made.target} on {made.ceilings.device}"
    (ops,) = [track for track in found.slices if track[1] == "ops"]
    assert ops[0] == step
    assert len(found.slices[step, "ops"]) == len(found.slices[step, "regimes"]) == len(made.kernels)
    drawn_ns = sum(end - start for _, start, end in found.slices[step, "ops"])
    assert drawn_ns * 1e-9 == pytest.approx(sum(one.seconds for one in kernels), rel=1e-3)
    assert {name for name, _, _ in found.slices[step, "gaps"]} <= {
        *("dispatch", "python", "launch_latency", "sync", "copy", "allocation", "data_loading", "host")
    }
    fractions = [value for _, value in found.levels[step, "attained"]]
    assert 0.2 < max(fractions) <= 1.0


def test_the_trace_processor_sees_the_same(tmp_path):
    shell = shutil.which("trace_processor_shell")
    if shell is None:
        pytest.skip("there is no trace_processor_shell")
    from perfetto.trace_processor import TraceProcessor, TraceProcessorConfig

    path = tmp_path / "x.pftrace"
    path.write_bytes(packed([step_of(exam(kernel(0, 4.0), kernel(6.0, 2.0), step_s=10.0))]))
    with TraceProcessor(trace=str(path), config=TraceProcessorConfig(bin_path=shell)) as processor:
        rows = processor.query("select ts, dur from slice join track on track_id = track.id where track.name = 'ops'")
        assert [(row.ts, row.dur) for row in rows] == [(0, 4_000_000_000), (6_000_000_000, 2_000_000_000)]


@pytest.fixture
def trace(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return str(additions().save(tmp_path / "trace.json"))


def test_trace_show_and_compare_draw(trace, tmp_path):
    drawn, kept = str(tmp_path / "x.pftrace"), str(tmp_path / "exam.json")
    run = CliRunner().invoke
    for command in (["trace", trace, "-o", kept], ["trace", trace, "-o", drawn], ["show", kept, "-o", drawn]):
        done = run(gobrrr, command)
        assert done.exit_code == 0, done.output
    assert len({step for step, _ in read((tmp_path / "x.pftrace").read_bytes()).slices}) == 1
    schema.write(replace(examine_trace(tmp_path / "trace.json"), target="another"), tmp_path / "another.json")
    done = run(gobrrr, ["compare", kept, str(tmp_path / "another.json"), "-o", drawn, "--json"])
    assert json.loads(done.stdout)["same_machine"]
    assert len({step for step, _ in read((tmp_path / "x.pftrace").read_bytes()).slices}) == 2


def test_an_ending_that_says_nothing_is_answered_with_those_that_do(trace, tmp_path):
    done = CliRunner().invoke(gobrrr, ["compare", trace, trace, "-o", str(tmp_path / "x.gif")])
    assert ".pftrace" in str(done.exception)


def test_the_missing_extra_is_told_before_anything_is_done(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "perfetto", None)
    done = CliRunner().invoke(gobrrr, ["trace", "nothing.json", "-o", str(tmp_path / "x.pftrace")])
    assert "gobrrr[perfetto]" in str(done.exception)
