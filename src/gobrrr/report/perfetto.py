"""Tracks as a file for Perfetto's viewer, https://ui.perfetto.dev."""

from collections.abc import Iterator, Sequence
from typing import Any

from gobrrr.extras import need
from gobrrr.report.examined import Compared, Examined
from gobrrr.report.tracks import Slice, Step, Track, step_of

_SEQUENCE = 1
"""All packets are of one writer."""


def step(result: Examined) -> bytes:
    return packed([step_of(result.exam)])


def comparison(result: Compared) -> bytes:
    """Both in one file, each with its own tracks."""
    return packed([step_of(one.exam) for one in (result.before, result.after)])


def packed(steps: Sequence[Step]) -> bytes:
    """Each step a track with its own tracks below it, in their order. Events of a file are in the order of time."""
    protos: Any = need("perfetto.protos.perfetto.trace.perfetto_trace_pb2", "perfetto")
    builder = need("perfetto.trace_builder.proto_builder", "perfetto").TraceProtoBuilder()
    began_s = min([0.0, *(one.start_s for step in steps for track in step.tracks for one in track.slices)])
    events: list[tuple[int, Any]] = []
    number = 0
    for step in steps:
        number += 1
        parent = number
        _describe(builder, parent, step.name).child_ordering = protos.TrackDescriptor.EXPLICIT
        for rank, track in enumerate(step.tracks):
            number += 1
            described = _describe(builder, number, track.name)
            described.parent_uuid, described.sibling_order_rank = parent, rank
            if track.levels:
                described.counter.unit_name = "of the ceiling"
            events += _events(protos, track, number, began_s)
    for moment_ns, event in sorted(events, key=lambda one: one[0]):
        packet = _packet(builder)
        packet.timestamp = moment_ns
        packet.track_event.CopyFrom(event)
    data: bytes = builder.serialize()
    return data


def _packet(builder: Any) -> Any:
    packet = builder.add_packet()
    packet.trusted_packet_sequence_id = _SEQUENCE
    return packet


def _describe(builder: Any, number: int, name: str) -> Any:
    described = _packet(builder).track_descriptor
    described.uuid, described.name = number, name
    return described


def _events(protos: Any, track: Track, number: int, began_s: float) -> Iterator[tuple[int, Any]]:
    kinds = protos.TrackEvent
    for one in track.slices:
        start_ns, end_ns = (round((moment_s - began_s) * 1e9) for moment_s in (one.start_s, one.start_s + one.seconds))
        yield start_ns, _begin(protos, one, number)
        yield end_ns, kinds(type=kinds.TYPE_SLICE_END, track_uuid=number)
    for level in track.levels:
        moment_ns = round((level.start_s - began_s) * 1e9)
        yield moment_ns, kinds(type=kinds.TYPE_COUNTER, track_uuid=number, double_counter_value=level.value)


def _begin(protos: Any, one: Slice, number: int) -> Any:
    event = protos.TrackEvent(type=protos.TrackEvent.TYPE_SLICE_BEGIN, track_uuid=number, name=one.name)
    for name, value in one.notes.items():
        note = event.debug_annotations.add(name=name)
        if isinstance(value, str):
            note.string_value = value
        else:
            note.double_value = value
    return event
