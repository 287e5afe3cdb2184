"""Reading traces: whatever the layout, the age and the damage, the same columns or a sentence."""

import gzip
import json
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gobrrr.errors import BadInput
from gobrrr.timing.timeline import SpanKind
from gobrrr.timing.traces import decode, inflate, reading, slabs
from gobrrr.timing.traces.columns import KINDS, Trace
from gobrrr.timing.traces.links import launched
from gobrrr.timing.traces.reading import read_trace
from traces import Tape, additions, saved, shared

LAYOUTS = {
    "kineto's": lambda document: json.dumps(document, indent=2),
    "compact": lambda document: json.dumps(document, separators=(",", ":")),
    "a bare list": lambda document: json.dumps(document["traceEvents"]),
    "a list that was never closed": lambda document: json.dumps(document["traceEvents"])[:-1],
    "a list with a comma behind": lambda document: json.dumps(document["traceEvents"])[:-1] + ",\n]",
    "a list with a comma behind that was never closed": lambda document: json.dumps(document["traceEvents"])[:-1] + ",",
    "events first": lambda document: json.dumps({"traceEvents": document["traceEvents"], **document}),
    "events in the middle": lambda document: json.dumps({"a": [{}], **document, "z": [{"traceEvents": [1]}]}),
}


def rows(trace: Trace) -> list[tuple[object, ...]]:
    """Everything that is kept, with names instead of places."""
    columns = trace.columns
    return [
        (
            KINDS[columns.kind[row]],
            trace.name_of(row),
            trace.lanes[columns.lane[row]],
            columns.start_us[row],
            columns.us[row],
            columns.correlation[row],
            columns.external[row],
            columns.sequence[row],
            None if columns.details[row] < 0 else [json.loads(text) for text in shapes(trace, row) if text],
        )
        for row in range(len(columns))
    ]


def shapes(trace: Trace, row: int) -> tuple[bytes, ...]:
    return trace.details[trace.columns.details[row]][:4]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("suffix", [".json", ".json.gz"])
def test_the_layout_of_the_file_makes_no_difference(tmp_path, layout, suffix):
    document = additions().document()
    path = saved(tmp_path / f"trace{suffix}", LAYOUTS[layout](document).encode())
    expected = read_trace(saved(tmp_path / "plain.json", json.dumps(document).encode()))
    assert rows(read_trace(path)) == rows(expected)


def test_old_names_of_categories_mean_the_same(tmp_path):
    new, old = (rows(read_trace(additions(age=age).save(tmp_path / f"{age}.json"))) for age in ("new", "old"))
    assert new == old
    assert [row[0] for row in new].count(SpanKind.ANNOTATION) == 3


@pytest.mark.parametrize("kind", ["plain json", "small slabs", "exact cuts", "two processes"])
def test_every_way_of_reading_gives_the_same(tmp_path, monkeypatch, kind):
    path = additions(steps=40).save(tmp_path / "trace.json.gz")
    expected = rows(read_trace(path, processes=1))
    if kind == "plain json":
        monkeypatch.setattr(decode, "_msgspec", lambda: None)
    else:
        monkeypatch.setattr(slabs, "SLAB_BYTES", 1000)
        monkeypatch.setattr("gobrrr.timing.traces.inflate.PIECE_BYTES", 500)
    if kind == "exact cuts":
        monkeypatch.setattr(reading, "_decoded", lambda slab, way: (_ for _ in ()).throw(reading._WrongCut))
    if kind == "two processes":
        monkeypatch.setattr(reading, "_may_fork", lambda: True)
    assert rows(read_trace(path, processes=2 if kind == "two processes" else 1)) == expected


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.text(st.characters(exclude_categories=("Cs",)), max_size=12), min_size=1, max_size=6),
    slab=st.integers(40, 400),
)
def test_names_that_look_like_the_end_of_an_event_cut_nothing(tmp_path_factory, names, slab):
    tape = Tape()
    for place, name in enumerate([*names, "}, {", '"}]', "\\", "},\n  {", 'x", "ph": "X'] * 2):
        tape.op(name, 10.0 * place, 5.0)
    path = saved(tmp_path_factory.mktemp("t") / "t.json", json.dumps(tape.document()).encode())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slabs, "SLAB_BYTES", slab)
        patch.setattr("gobrrr.timing.traces.inflate.PIECE_BYTES", slab // 2)
        read = read_trace(path, processes=1)
    assert [row[1] for row in rows(read)] == [event["name"] for event in tape.events]
    assert read.lost == ()


def test_control_characters_inside_strings_are_read(tmp_path):
    tape = Tape()
    tape.op("one\x01two\nthree", 1.0, 2.0)
    text = json.dumps(tape.document()).replace("\\u0001", "\x01").replace("\\n", "\n")
    assert read_trace(saved(tmp_path / "t.json", text.encode())).name_of(0) == "one two three"


def test_what_starts_or_lasts_no_time_that_there_is_is_lost_and_said(tmp_path):
    tape = Tape()
    for ts, dur in ((1.0, 2.0), (float("nan"), 1.0), (2.0, -1.0), (float("inf"), 1.0), (3.0, float("inf")), (4.0, 0.0)):
        tape.op("aten::add", ts, dur)
    read = read_trace(tape.save(tmp_path / "t.json"))
    assert [row[3] for row in rows(read)] == [1.0, 4.0]
    assert read.lost == ("4 of its 6 events could not be read",)


@settings(max_examples=80, deadline=None)
@given(share=st.floats(0.0, 1.0), compressed=st.booleans())
def test_a_file_that_breaks_off_anywhere_gives_what_is_there(tmp_path_factory, share, compressed):
    text = json.dumps(additions(steps=20).document(), indent=2).encode()
    whole = gzip.compress(text) if compressed else text
    path = tmp_path_factory.mktemp("t") / "t.json"
    path.write_bytes(whole[: int(share * len(whole))])
    everything = [event["name"] for event in additions(steps=20).events]
    try:
        read = read_trace(path, processes=1)
    except BadInput:
        return
    found = [row[1] for row in rows(read)]
    assert found == everything[: len(found)]
    assert found == everything or read.lost


def test_members_of_a_gzip_file_are_one_text_and_garbage_behind_them_is_none(tmp_path):
    text = json.dumps(additions().document()).encode()
    path = tmp_path / "t.json.gz"
    path.write_bytes(gzip.compress(text[:1000]) + gzip.compress(text[1000:]) + b"garbage")
    read = read_trace(path)
    assert len(read.columns) == len(additions().events)
    assert read.lost == ()


def test_both_inflaters_give_the_same_text_of_whole_and_of_broken_files(tmp_path, monkeypatch):
    engine = pytest.importorskip("isal.isal_zlib")
    whole = gzip.compress(json.dumps(additions(40).document()).encode())
    files = {name: saved(tmp_path / name, text) for name, text in (("whole", whole), ("broken", whole[:-2000]))}
    for file in files.values():
        texts = []
        for one in (engine, zlib):
            monkeypatch.setattr(inflate, "_engine", lambda one=one: one)
            texts.append(b"".join(inflate.Text(file)))
        assert texts[0].startswith(texts[1][:1000])
        assert abs(len(texts[0]) - len(texts[1])) <= inflate.SALVAGED_BYTES


def test_blocks_of_rows_hold_all_that_start_within(tmp_path):
    trace = read_trace(additions(30_000).save(tmp_path / "t.json"))
    assert len(trace.blocks) > 1
    for start_us, end_us in ((0.0, 1e9), (500.0, 501.0), (7000.0, 90_000.0), (1e9, 2e9)):
        assert trace.within(start_us, end_us) == [
            row for row, us in enumerate(trace.columns.start_us) if start_us <= us < end_us
        ]


def test_without_numbers_arrows_join_kernels_with_their_calls(tmp_path):
    tape = Tape()
    tape.span("call", "cudaLaunchKernel", 10.0, 4.0, correlation=5)
    tape.kernel("add_kernel", 30.0, 7.0)
    tape.events.append({"ph": "s", "id": 5, "pid": 1, "tid": 1, "ts": 10.0, "cat": "ac2g", "name": "ac2g"})
    tape.events.append({"ph": "f", "id": 5, "pid": 0, "tid": 7, "ts": 30.0, "cat": "ac2g", "name": "ac2g", "bp": "e"})
    ((_, call),) = launched(read_trace(tape.save(tmp_path / "t.json")))
    assert call == 0


def test_of_calls_with_one_number_the_last_before_is_meant(tmp_path):
    tape = Tape()
    for ts in (10.0, 50.0, 90.0):
        tape.span("call", "cudaLaunchKernel", ts, 4.0, correlation=5)
    tape.kernel("add_kernel", 60.0, 7.0, correlation=5)
    ((_, call),) = launched(read_trace(tape.save(tmp_path / "t.json")))
    assert call == 1


BAD = {
    "empty": b"",
    "spaces": b"  \n ",
    "text": b"hello",
    "a number": b"42",
    "another object": b'{"a": 1}',
    "events that are no list": b'{"traceEvents": 5}',
    "no events": b'{"traceEvents": []}',
    "an empty list": b"[]",
    "brackets": b'{"traceEvents": [' + b"[" * 100_000 + b"]" * 100_000 + b"]}",
    "damaged": b"\x1f\x8b\x08\x00" + b"\x00" * 100,
}


@pytest.mark.parametrize("text", BAD.values(), ids=BAD)
def test_what_is_no_trace_is_refused_in_a_sentence(tmp_path, text):
    path = tmp_path / "t.json"
    path.write_bytes(text)
    with pytest.raises(BadInput, match=r"t\.json is not a trace that can be read: .{10}"):
        read_trace(path)


@pytest.mark.parametrize(
    ("text", "advice"),
    [
        (json.dumps(additions().document()).encode("utf-16"), "UTF-8"),
        (gzip.compress(gzip.compress(b"[]", mtime=0), mtime=0), "gunzip"),
        (b"PK\x03\x04", "unpack"),
        (b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
        (b"<!DOCTYPE html>", "HTML"),
    ],
)
def test_what_people_have_in_its_place_is_told_by_name(tmp_path, text, advice):
    path = tmp_path / "t.json"
    path.write_bytes(text)
    with pytest.raises(BadInput, match=advice):
        read_trace(path)


def test_what_stands_behind_the_events_and_cannot_be_read_is_told(tmp_path):
    text = json.dumps(additions().document())
    read = read_trace(saved(tmp_path / "t.json", f"{text}\n{text}".encode()))
    assert len(read.columns) == len(additions().events)
    assert read.lost == ("what stands behind its events could not be read",)


def test_a_folder_and_a_missing_file_are_refused_in_a_sentence(tmp_path):
    for path in (tmp_path, tmp_path / "none.json"):
        with pytest.raises(BadInput, match="cannot be read"):
            read_trace(path)


def test_a_bomb_is_refused_before_it_fills_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(slabs, "MOST_APART", 1 << 20)
    monkeypatch.setattr(slabs, "SLAB_BYTES", 1 << 16)
    path = saved(tmp_path / "t.json.gz", b'{"traceEvents": [' + b" " * (50 << 20))
    with pytest.raises(BadInput, match="an event of more than 1 MiB"):
        read_trace(path)


@pytest.mark.parametrize(
    "name", ["gpt2_train_b8x1024_bf16.json.gz", "public/v100_bare_list.json.gz", "public/a100_old_categories.json.gz"]
)
def test_real_traces_are_read_alike_by_both_decoders(name, monkeypatch):
    path = shared(name)
    typed = rows(read_trace(path, processes=1))
    monkeypatch.setattr(decode, "_msgspec", lambda: None)
    assert rows(read_trace(path, processes=1)) == typed
