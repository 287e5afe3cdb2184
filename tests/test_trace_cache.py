"""A trace is read once: what is kept of it is its Exam, and nothing that may no longer hold."""

import os
from dataclasses import replace

import pytest

from gobrrr import schema, trace_cache, trace_examination
from gobrrr.exam import Exam
from gobrrr.machine.ceilings import Ceilings
from gobrrr.timing.traces.source import Address
from gobrrr.trace_examination import exam_or_trace, examine_trace
from gobrrr.work import registry
from gobrrr.work.op import OpClass
from gobrrr.work.registry import Rule
from gobrrr.work.work import Work
from traces import additions, saved, shared


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "gobrrr" / "traces"


@pytest.fixture
def reads(monkeypatch):
    """How often a trace was read."""
    seen = []
    really = trace_examination.read_trace
    monkeypatch.setattr(
        trace_examination, "read_trace", lambda source, **more: seen.append(source) or really(source, **more)
    )
    return seen


@pytest.fixture
def trace(tmp_path):
    return additions(150).save(tmp_path / "trace.json")


def test_a_trace_is_read_once_and_its_exam_is_the_same(trace, reads):
    assert examine_trace(trace) == examine_trace(trace) == exam_or_trace(trace)
    assert len(reads) == 1


def test_a_real_trace_comes_back_as_it_was(reads):
    path = shared("gpt2_train_b8x1024_bf16.json.gz")
    assert examine_trace(path) == examine_trace(path)
    assert len(reads) == 1


def test_a_file_that_changed_is_read_again(trace, reads):
    examine_trace(trace)
    additions(160).save(trace)
    assert examine_trace(trace).steps == 160
    os.utime(trace, ns=(1, 1))
    examine_trace(trace)
    assert len(reads) == 3


def test_code_that_changed_reads_again(trace, reads, monkeypatch):
    examine_trace(trace)
    monkeypatch.setattr(trace_cache, "_code", lambda: ("elsewhere", 1))
    examine_trace(trace)
    assert len(reads) == 2


def test_ceilings_are_those_of_now(trace, reads, tmp_path):
    before = examine_trace(trace)
    mine = replace(before.ceilings, dram_bytes_per_s=1e12, fingerprint="this")
    schema.write(mine, tmp_path / "cache" / "gobrrr" / "machine-this.json")
    assert (examine_trace(trace).ceilings, examine_trace(trace).ceilings_from) == (mine, "measured")
    other = Ceilings(device="another", kind="cuda", threads=0, measured_at="2026-01-01T00:00:00+00:00")
    schema.write(other, tmp_path / "other.json")
    assert examine_trace(trace, ceilings=tmp_path / "other.json").ceilings == other
    assert examine_trace(trace).ceilings == mine
    assert len(reads) == 1


@pytest.mark.parametrize("damage", [b"", b"{", b'{"schema_version": 1}', b"\xff" * 100])
def test_a_damaged_entry_is_passed_over_and_replaced(trace, reads, folder, damage):
    good = examine_trace(trace)
    (kept,) = folder.iterdir()
    kept.write_bytes(damage)
    again = examine_trace(trace)
    assert replace(again, made_at=good.made_at) == good
    assert schema.read(Exam, kept) == again
    assert len(reads) == 2


def test_the_one_used_longest_ago_goes_first(tmp_path, folder, monkeypatch):
    monkeypatch.setattr(trace_cache, "MOST", 2)
    traces = [additions(150).save(tmp_path / f"{number}.json") for number in range(3)]
    for number, trace in enumerate(traces[:2]):
        examine_trace(trace)
        os.utime(trace_cache._path(trace), ns=(number, number))
    examine_trace(traces[0])  # used now, so the other one is the oldest
    examine_trace(traces[2])
    assert {trace_cache._path(trace) for trace in (traces[0], traces[2])} == set(folder.iterdir())


def test_no_more_bytes_are_kept_than_allowed(trace, tmp_path, folder, monkeypatch):
    examine_trace(trace)
    (kept,) = folder.iterdir()
    monkeypatch.setattr(trace_cache, "MOST_BYTES", kept.stat().st_size + 10)
    examine_trace(additions(150).save(tmp_path / "another.json"))
    assert len(list(folder.iterdir())) == 1


def test_where_nothing_can_be_kept_the_exam_is_made_all_the_same(trace, reads, tmp_path, monkeypatch):
    saved(tmp_path / "a_file", b"")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "a_file"))
    assert examine_trace(trace).steps == examine_trace(trace).steps == 150
    assert len(reads) == 2


def test_formulas_of_a_users_own_are_always_asked(trace, reads, monkeypatch):
    examine_trace(trace)
    mine = Rule(OpClass.OTHER, lambda _call: Work(bytes_read=1))
    monkeypatch.setattr(registry, "_rules", {**registry._rules, "add": mine})
    (first, *_) = examine_trace(trace).dispatched
    assert first.work == Work(bytes_read=1)
    assert len(reads) == 2


def test_nothing_is_kept_of_small_traces_and_of_addresses(tmp_path, folder):
    small = additions(2).save(tmp_path / "small.json")
    examine_trace(small)
    assert trace_cache._path(Address("memory://trace.json")) is None
    assert not folder.exists()
