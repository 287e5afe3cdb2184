"""Traces from anywhere: whatever fsspec opens is read like a file of this machine."""

import gzip
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from gobrrr.cli import gobrrr
from gobrrr.errors import BadInput, Missing
from gobrrr.timing.traces.source import Address, source_of
from gobrrr.trace_examination import exam_or_trace, examine_trace
from traces import additions

fsspec = pytest.importorskip("fsspec")


@pytest.fixture
def remote():
    """A file of fsspec's own store in memory."""
    store = fsspec.filesystem("memory")

    def put(name: str, text: bytes) -> str:
        store.pipe(f"/{name}", text)
        return f"memory://{name}"

    yield put
    store.rm("/", recursive=True)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_trace_behind_an_address_is_the_same_trace(remote, tmp_path, suffix):
    text = json.dumps(additions().document()).encode()
    local = tmp_path / f"trace.json{suffix}"
    local.write_bytes(gzip.compress(text) if suffix else text)
    there = source_of(remote(local.name, local.read_bytes()))
    assert isinstance(there, Address)
    here = examine_trace(local)
    assert replace(examine_trace(there), made_at=here.made_at) == here
    assert replace(exam_or_trace(there), made_at=here.made_at) == here


def test_the_command_takes_addresses(remote):
    url = remote("trace.json", json.dumps(additions().document()).encode())
    done = CliRunner().invoke(gobrrr, ["trace", url, "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["steps"] == 3


@pytest.mark.parametrize("url", ["memory://nothing/here.json", "nosuch://place"])
def test_what_cannot_be_opened_is_bad_input(url):
    with pytest.raises(BadInput, match="cannot be read"):
        examine_trace(source_of(url))


def test_errors_of_a_store_are_told_in_a_sentence(monkeypatch):
    def broken(*_args):
        raise RuntimeError("no credentials")

    monkeypatch.setattr(fsspec, "open", broken)
    with pytest.raises(BadInput, match=r"s3://bucket/trace\.json cannot be read: RuntimeError: no credentials"):
        examine_trace(source_of("s3://bucket/trace.json"))


def test_a_missing_client_is_told_by_name(monkeypatch):
    def missing(*_args):
        raise ImportError("Install s3fs to access S3")

    monkeypatch.setattr(fsspec, "open", missing)
    with pytest.raises(Missing, match="Install s3fs"):
        examine_trace(source_of("s3://bucket/trace.json"))


def test_without_fsspec_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(Missing, match=r"gobrrr\[remote\]"):
        examine_trace(source_of("s3://bucket/trace.json"))


@given(
    st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1).filter(
        lambda text: "://" not in text
    )
)
def test_whatever_has_no_scheme_is_a_path(text):
    assert source_of(text) == Path(text)


@pytest.mark.parametrize("url", ["s3://bucket/a.json", "https://host/a.json", "zip://a.json::s3://bucket/a.zip"])
def test_an_address_keeps_its_slashes(url):
    assert str(source_of(url)) == url
    assert source_of(url).name == url.rpartition("/")[2]
